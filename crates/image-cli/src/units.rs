//! Times and sizes as people write and read them.

/// Milliseconds from seconds, or from a number with `ms`, `s`, `m`, `h`; at least one.
pub fn parse_millis(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || format!("'{text}' is no time: write seconds, or for example 500ms, 10m");
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let scale = match unit {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" | "min" => 6e4,
        "h" => 3.6e6,
        _ => return Err(wrong()),
    };
    let millis = number * scale;
    if (1.0..=1e15).contains(&millis) { Ok(millis as u64) } else { Err(wrong()) }
}

/// Bytes for reading: `1.4 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A time for reading: `4.20 ms`, `850 ms`, `12.3 s`.
pub fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1e3 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(parse_millis("0.25"), Ok(250));
        assert_eq!(parse_millis("5ms"), Ok(5));
        assert_eq!(parse_millis("2m"), Ok(120_000));
        for bad in ["", "x", "0", "-1", "4d", "1e99", "0.1ms"] {
            assert!(parse_millis(bad).is_err(), "{bad}");
        }
        assert_eq!((bytes(100), bytes(3 << 29)), ("100 B".into(), "1.5 GiB".into()));
        assert_eq!((millis(4.2), millis(250.0)), ("4.20 ms".into(), "250 ms".into()));
    }
}
