//! Enumerations: the values that some variables take, by name.

use std::ffi::{c_char, c_int};

use super::{at, put_text, put_wanted, tool_shims};
use crate::repr::tools::ToolError;

/// A named value of an enumeration.
pub struct Choice {
    pub value: c_int,
    pub name: &'static str,
}

/// An enumeration.
pub struct Choices {
    pub name: &'static str,
    pub items: &'static [Choice],
}

const fn choice(value: c_int, name: &'static str) -> Choice {
    Choice { value, name }
}

/// How a job is protected.
pub static PROTECTION: Choices = Choices {
    name: "eyrie_protection",
    items: &[choice(0, "none"), choice(1, "coordinated"), choice(2, "logged")],
};
/// What ranks send ahead of the links; by the values of the segment.
pub static EARLY: Choices = Choices {
    name: "eyrie_early",
    items: &[choice(0, "off"), choice(1, "on"), choice(2, "small")],
};
/// How calls are checked; by the values of `check`.
pub static CHECK: Choices =
    Choices { name: "eyrie_check", items: &[choice(0, "off"), choice(1, "on"), choice(2, "full")] };
/// What a rank does.
pub static STATE: Choices = Choices {
    name: "eyrie_rank_state",
    items: &[
        choice(STATE_ABSENT, "absent"),
        choice(STATE_LIVE, "live"),
        choice(STATE_REPEATS, "repeats"),
    ],
};
/// MPI has not been started.
pub const STATE_ABSENT: c_int = 0;
pub const STATE_LIVE: c_int = 1;
/// It repeats what it had done before it died.
pub const STATE_REPEATS: c_int = 2;

/// All of them; a handle is the place here, counted from one.
static ALL: [&Choices; 4] = [&PROTECTION, &EARLY, &STATE, &CHECK];

/// The handle of an enumeration, or none (`MPI_T_ENUM_NULL`).
pub fn handle_of(choices: Option<&'static Choices>) -> usize {
    let place = |c: &'static Choices| ALL.iter().position(|a| std::ptr::eq(*a, c));
    choices.and_then(place).map_or(0, |n| n + 1)
}

fn of_handle(handle: usize) -> Result<&'static Choices, ToolError> {
    let place = handle.checked_sub(1).ok_or(ToolError::InvalidHandle)?;
    ALL.get(place).copied().ok_or(ToolError::InvalidHandle)
}

tool_shims! {
    fn PMPI_T_enum_get_info (handle: usize, number: *mut c_int, name: *mut c_char,
                             name_length: *mut c_int); |_tools| {
        let choices = of_handle(handle)?;
        put_wanted(number, choices.items.len() as c_int);
        put_text(name, name_length, choices.name);
    }
    fn PMPI_T_enum_get_item (handle: usize, index: c_int, value: *mut c_int, name: *mut c_char,
                             name_length: *mut c_int); |_tools| {
        let item = at(of_handle(handle)?.items, index)?;
        put_wanted(value, item.value);
        put_text(name, name_length, item.name);
    }
}
