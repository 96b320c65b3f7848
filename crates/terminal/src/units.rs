//! Sizes and times as people write and read them.

/// Bytes from `64M`, `1.5GiB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong_size(text))?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong_size(text)),
    };
    let bytes = number * (1u64 << shift) as f64;
    if !(1.0..=1e18).contains(&bytes) {
        return Err(wrong_size(text));
    }
    Ok(bytes as u64)
}

/// The same of a limit, where 0 means none at all.
pub fn parse_limit(text: &str) -> Result<u64, String> {
    let is_none = text.starts_with('0') && text.trim_start_matches('0').is_empty();
    if is_none { Ok(0) } else { parse_bytes(text) }
}

fn wrong_size(text: &str) -> String {
    format!("'{text}' is no size: write for example 512M or 2G")
}

/// Milliseconds from seconds, or from a number with `ms`, `s`, `m`, `h`.
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
    if !(0.0..=1e15).contains(&millis) || (millis < 1.0 && number != 0.0) {
        return Err(wrong());
    }
    Ok(millis as u64)
}

/// The same, but at least one millisecond.
pub fn parse_interval(text: &str) -> Result<u64, String> {
    match parse_millis(text)? {
        0 => Err(format!("'{text}' is too short: at least 1ms")),
        millis => Ok(millis),
    }
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

/// A time for reading: `850 ms`, `12.3 s`, `5m10s`.
pub fn millis(ms: f64) -> String {
    let seconds = ms / 1e3;
    if ms < 10.0 {
        format!("{ms:.2} ms")
    } else if ms < 1e3 {
        format!("{ms:.0} ms")
    } else if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else if seconds < 3600.0 {
        format!("{}m{:02}s", (seconds / 60.0) as u64, seconds as u64 % 60)
    } else {
        format!("{}h{:02}m", (seconds / 3600.0) as u64, (seconds / 60.0) as u64 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!((parse_limit("0"), parse_limit("2K")), (Ok(0), Ok(2048)));
        assert!(parse_limit("").is_err() && parse_limit("0.5").is_err());
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        for bad in ["", "x", "0", "-1", "4Q", "1e99G", "."] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes(100), "100 B");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn times() {
        assert_eq!(parse_millis("60"), Ok(60_000));
        assert_eq!(parse_millis("0.25"), Ok(250));
        assert_eq!(parse_millis("5ms"), Ok(5));
        assert_eq!(parse_millis("2m"), Ok(120_000));
        assert_eq!(parse_millis("0"), Ok(0));
        for bad in ["", "x", "-1", "4d", "1e99", "0.1ms"] {
            assert!(parse_millis(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_interval("1ms"), Ok(1));
        assert!(parse_interval("0").is_err() && parse_interval("x").is_err());
        assert_eq!(millis(4.2), "4.20 ms");
        assert_eq!(millis(250.0), "250 ms");
        assert_eq!(millis(12_340.0), "12.3 s");
        assert_eq!(millis(310_000.0), "5m10s");
    }
}
