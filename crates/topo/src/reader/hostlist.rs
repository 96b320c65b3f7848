//! Lists of names as Slurm writes them: `n[0-3,7],m[00-15],login`.

use crate::shape::MOST_NODES;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    #[error("'{0}': a bracket is not closed, or not opened")]
    Bracket(String),
    #[error("'{0}' is no range of numbers")]
    Range(String),
    #[error("'{0}': a name is empty")]
    Empty(String),
    #[error("more than {MOST_NODES} names")]
    TooMany,
}

/// The names of a list.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for part in parts(list)? {
        let mut made = vec![String::new()];
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('[') {
            let (ranges, after) =
                after.split_once(']').ok_or_else(|| HostlistError::Bracket(part.into()))?;
            let numbers = numbers(ranges)?;
            if made.len().saturating_mul(numbers.len()) > MOST_NODES as usize {
                return Err(HostlistError::TooMany);
            }
            let with = |start: &String| {
                let start = format!("{start}{before}");
                numbers.iter().map(move |number| format!("{start}{number}")).collect::<Vec<_>>()
            };
            made = made.iter().flat_map(with).collect();
            rest = after;
        }
        if rest.contains(']') {
            return Err(HostlistError::Bracket(part.into()));
        }
        made.iter_mut().for_each(|name| name.push_str(rest));
        if names.len() + made.len() > MOST_NODES as usize {
            return Err(HostlistError::TooMany);
        }
        names.extend(made);
    }
    if names.iter().any(String::is_empty) {
        return Err(HostlistError::Empty(list.into()));
    }
    Ok(names)
}

/// Parts between commas that are in no bracket.
fn parts(list: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut parts, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' | ']' if is_inside == (letter == '[') => {
                return Err(HostlistError::Bracket(list.into()));
            }
            '[' | ']' => is_inside = letter == '[',
            ',' if !is_inside => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(HostlistError::Bracket(list.into()));
    }
    parts.push(&list[start..]);
    Ok(parts)
}

/// Numbers of `0-3,007`, with as many digits as they are written with.
fn numbers(ranges: &str) -> Result<Vec<String>, HostlistError> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let wrong = || HostlistError::Range(range.into());
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return Err(wrong());
        }
        let (from, to): (u64, u64) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if from > to || first.len() > 20 {
            return Err(wrong());
        }
        if to - from >= u64::from(MOST_NODES)
            || all.len() as u64 + (to - from) >= u64::from(MOST_NODES)
        {
            return Err(HostlistError::TooMany);
        }
        let width = first.len();
        all.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded() {
        let names = |list| expand(list).unwrap().join(" ");
        assert_eq!(names("a"), "a");
        assert_eq!(names("n[0-2,7],m"), "n0 n1 n2 n7 m");
        assert_eq!(names("n[08-11]"), "n08 n09 n10 n11");
        assert_eq!(names("r[0-1]n[1-2]x"), "r0n1x r0n2x r1n1x r1n2x");
        assert_eq!(names("n[3]"), "n3");
    }

    #[test]
    fn mistakes_are_named() {
        for (list, error) in [
            ("n[0-2", "bracket"),
            ("n0-2]", "bracket"),
            ("n[0[1]]", "bracket"),
            ("n[2-0]", "'2-0' is no range"),
            ("n[a]", "'a' is no range"),
            ("n[]", "'' is no range"),
            ("n[-1]", "is no range"),
            ("a,,b", "empty"),
            ("", "empty"),
            ("n[0-99999999]", "more than"),
            ("n[0-1048576]", "more than"),
            ("n[0-1023][0-1024]", "more than"),
            ("n[0-18446744073709551615]", "more than"),
            ("n[0-99999999999999999999999]", "is no range"),
        ] {
            let found = expand(list).unwrap_err().to_string();
            assert!(found.contains(error), "{list}: {found}");
        }
        assert_eq!(expand("n[0-1048575]").unwrap().len(), 1 << 20);
    }
}
