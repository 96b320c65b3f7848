//! Categories: what the variables and events are about.

use std::ffi::{c_char, c_int};

use super::about::About;
use super::cvar_table::CVARS;
use super::event::EVENTS;
use super::pvar_table::PVARS;
use super::{at, name_in, put, put_indices, put_text, put_wanted, tool_shims};
use crate::repr::tools::ToolError;

/// Name and description, by index.
static CATEGORIES: [(&str, &str); 6] = [
    ("eyrie", "All variables of Eyrie"),
    ("eyrie_job", "What the job is, and how it is run"),
    ("eyrie_messages", "Messages of this rank, and how long it waits for them"),
    ("eyrie_log", "The message log and the determinant log of this rank"),
    ("eyrie_recovery", "Checkpoints of this rank, and how often it came back"),
    ("eyrie_regions", "Checkpoints of regions (libeyrie_regions.so)"),
];

fn cvars(of: usize) -> impl Iterator<Item = usize> {
    CVARS.iter().enumerate().filter(move |(_, v)| v.category as usize == of).map(|(n, _)| n)
}

fn pvars(of: usize) -> impl Iterator<Item = usize> {
    PVARS.iter().enumerate().filter(move |(_, v)| v.category as usize == of).map(|(n, _)| n)
}

fn events(of: usize) -> impl Iterator<Item = usize> {
    EVENTS.iter().enumerate().filter(move |(_, v)| v.category as usize == of).map(|(n, _)| n)
}

/// The categories within one.
fn parts(of: usize) -> std::ops::Range<usize> {
    if of == About::All as usize { 1..CATEGORIES.len() } else { 0..0 }
}

/// An index that there is.
fn checked(index: c_int) -> Result<usize, ToolError> {
    at(&CATEGORIES, index).map(|_| index as usize)
}

tool_shims! {
    fn PMPI_T_category_get_num (number: *mut c_int); |_tools| {
        put(number, CATEGORIES.len() as c_int)?;
    }
    fn PMPI_T_category_get_info (index: c_int, name: *mut c_char, name_length: *mut c_int,
                                 about: *mut c_char, about_length: *mut c_int,
                                 number_cvars: *mut c_int, number_pvars: *mut c_int,
                                 number_categories: *mut c_int); |_tools| {
        let (own, text) = at(&CATEGORIES, index)?;
        let index = index as usize;
        put_text(name, name_length, own);
        put_text(about, about_length, text);
        put_wanted(number_cvars, cvars(index).count() as c_int);
        put_wanted(number_pvars, pvars(index).count() as c_int);
        put_wanted(number_categories, parts(index).len() as c_int);
    }
    fn PMPI_T_category_get_num_events (index: c_int, number: *mut c_int); |_tools| {
        put(number, events(checked(index)?).count() as c_int)?;
    }
    fn PMPI_T_category_get_index (name: *const c_char, index: *mut c_int); |_tools| {
        let name = name_in(name)?;
        let found = CATEGORIES.iter().position(|(own, _)| own.as_bytes() == name);
        put(index, found.ok_or(ToolError::InvalidName)? as c_int)?;
    }
    fn PMPI_T_category_get_cvars (index: c_int, room: c_int, indices: *mut c_int); |_tools| {
        put_indices(indices, room, cvars(checked(index)?));
    }
    fn PMPI_T_category_get_pvars (index: c_int, room: c_int, indices: *mut c_int); |_tools| {
        put_indices(indices, room, pvars(checked(index)?));
    }
    fn PMPI_T_category_get_events (index: c_int, room: c_int, indices: *mut c_int); |_tools| {
        put_indices(indices, room, events(checked(index)?));
    }
    fn PMPI_T_category_get_categories (index: c_int, room: c_int, indices: *mut c_int); |_tools| {
        put_indices(indices, room, parts(checked(index)?));
    }
    // They are what they are from the beginning.
    fn PMPI_T_category_changed (number: *mut c_int); |_tools| {
        put(number, 0)?;
    }
}
