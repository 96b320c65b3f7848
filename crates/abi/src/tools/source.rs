//! The one source of events: the rank, with the clock of MPI_Wtime.

use std::ffi::{c_char, c_int};

use super::{at, put, put_text, put_wanted, tool_shims};
use crate::env;
use crate::repr::tools::SOURCE_ORDERED;
use crate::repr::{CHandle, Info, LargeCount};

/// Name and description, by index.
pub static SOURCES: [(&str, &str); 1] =
    [("eyrie_rank", "This rank; its clock is that of MPI_Wtime, in nanoseconds")];

const TICKS_A_SECOND: LargeCount = 1_000_000_000;

tool_shims! {
    fn PMPI_T_source_get_num (number: *mut c_int); |_tools| {
        put(number, SOURCES.len() as c_int)?;
    }
    fn PMPI_T_source_get_info (index: c_int, name: *mut c_char, name_length: *mut c_int,
                               about: *mut c_char, about_length: *mut c_int,
                               ordering: *mut c_int, ticks: *mut LargeCount,
                               most_ticks: *mut LargeCount, info: *mut Info); |_tools| {
        let (own, text) = at(&SOURCES, index)?;
        put_text(name, name_length, own);
        put_text(about, about_length, text);
        put_wanted(ordering, SOURCE_ORDERED);
        put_wanted(ticks, TICKS_A_SECOND);
        put_wanted(most_ticks, LargeCount::MAX);
        if !info.is_null() {
            put(info, Info::of(super::event_handle::no_hints()?))?;
        }
    }
    fn PMPI_T_source_get_timestamp (index: c_int, ticks: *mut LargeCount); |_tools| {
        at(&SOURCES, index)?;
        put(ticks, env::wtime_ns() as LargeCount)?;
    }
}
