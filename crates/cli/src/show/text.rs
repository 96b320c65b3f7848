//! Numbers, names and commands as text that fits and steers no terminal.

/// Ranks as ranges: `0-3,7`.
pub fn ranks(all: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in all {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Without what would steer a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Cut off at so many columns.
pub fn cut(text: &str, most: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most.saturating_sub(3)).collect::<String>() + "..."
}

/// The program with its arguments.
pub fn command(program: &str, args: &[String]) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    std::iter::once(name).chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// `1 death`, `2 deaths`.
pub fn count(number: u64, one: &str) -> String {
    let many = if number == 1 { "" } else { "s" };
    format!("{number} {one}{many}")
}
