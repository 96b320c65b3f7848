//! Wall-clock times: as numbers in records, and as people read them in their time zone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 of what was before.
pub fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

pub fn now_unix_ms() -> u64 {
    unix_ms(SystemTime::now())
}

/// `2026-11-29 03:49:36`.
pub fn date(unix_ms: u64) -> String {
    let local = local(unix_ms);
    format!(
        "{:04}-{:02}-{:02} {}",
        local.tm_year + 1900,
        local.tm_mon + 1,
        local.tm_mday,
        time(&local)
    )
}

/// `03:49:36`.
pub fn time_of_day(at: SystemTime) -> String {
    time(&local(unix_ms(at)))
}

fn time(local: &libc::tm) -> String {
    format!("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec)
}

fn local(unix_ms: u64) -> libc::tm {
    let seconds = Duration::from_millis(unix_ms).as_secs() as libc::time_t;
    // SAFETY: a structure of numbers and of a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: reads and writes two variables that are ours.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut local) };
    local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_clocks_show_them() {
        let told = time_of_day(UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let parts: Vec<u8> = told.split(':').map(|part| part.parse().unwrap()).collect();
        // Zones differ by whole minutes.
        assert!(told.len() == 8 && parts[0] < 24 && parts[1] < 60 && parts[2] == 20, "{told}");
        let whole = date(1_700_000_000_999);
        assert!(whole.starts_with("2023-11-1") && whole.ends_with(&told), "{whole}");
    }
}
