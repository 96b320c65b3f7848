//! Files of several programs, a line each (`-configfile`, `--app`): their words as a shell would
//! part them, without anything else that a shell does.

use std::ffi::OsString;
use std::path::Path;

/// The words of a file, its lines parted by `:`.
pub fn of_file(option: &str, path: &Path) -> Result<Vec<OsString>, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| format!("{option} {}: {e}", path.display()))?;
    of_text(&text).map_err(|(line, why)| format!("{option} {}, line {line}: {why}", path.display()))
}

fn of_text(text: &str) -> Result<Vec<OsString>, (usize, &'static str)> {
    let mut all: Vec<OsString> = Vec::new();
    for (number, line) in (1..).zip(text.replace("\\\n", " ").lines()) {
        let mut words = parted(line).map_err(|why| (number, why))?;
        if words.last().is_some_and(|w| w == ":") {
            words.pop();
        }
        if words.is_empty() {
            continue;
        }
        if !all.is_empty() {
            all.push(":".into());
        }
        all.extend(words);
    }
    if all.is_empty() { Err((1, "there is no program in it")) } else { Ok(all) }
}

fn parted(line: &str) -> Result<Vec<OsString>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().push(letters.next().ok_or("it ends with '\\'")?);
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed");
    }
    words.extend(word.map(OsString::from));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_programs_and_words_are_a_shells() {
        let text = "# all of it\n-n 1 ./a 'b c' \"d \\\" e\" # one\n\n-n 2 ./b \\\n f :\n";
        let all = of_text(text).unwrap();
        let want = ["-n", "1", "./a", "b c", "d \" e", ":", "-n", "2", "./b", "f"];
        assert_eq!(all, want.map(OsString::from));
        for wrong in ["", "# nothing", "a 'b", "a \\"] {
            assert!(of_text(wrong).is_err(), "{wrong}");
        }
    }
}
