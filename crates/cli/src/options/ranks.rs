//! The number of ranks, as it is typed.

pub fn parse_size(text: &str) -> Result<u32, String> {
    let most = eyrie_ledger::segment::MAX_RANKS;
    match text.parse::<u32>() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("give a number of ranks from 1 to {most}")),
    }
}
