//! Any bytes as the body of each record of a vault, behind an envelope that holds: refused, or read
//! and written again as the same record; and what follows of a record is within its bounds.
#![no_main]

use eyrie_vault::record::{
    self, Commit, Dropped, ENVELOPE_BYTES, Identity, Manifest, Prepared, Record, VERSION,
};
use libfuzzer_sys::fuzz_target;

fn decoded<R: Record + PartialEq + std::fmt::Debug>(body: &[u8]) -> Option<R> {
    let mut bytes = R::MAGIC.to_vec();
    bytes.extend(u64::from(VERSION).to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(record::hash(body));
    assert_eq!(bytes.len(), ENVELOPE_BYTES);
    bytes.extend(body);
    let decoded: R = record::decode(&bytes).ok()?;
    let again = record::encode(&decoded).expect("a record can be written");
    assert_eq!(record::decode::<R>(&again).as_ref(), Ok(&decoded));
    Some(decoded)
}

fuzz_target!(|data: &[u8]| {
    let _ = record::decode::<Commit>(data);
    let Some((kind, body)) = data.split_first() else { return };
    match kind % 5 {
        0 => drop(decoded::<Identity>(body)),
        1 => drop(decoded::<Dropped>(body)),
        2 => drop(decoded::<Manifest>(body)),
        3 => drop(decoded::<Prepared>(body)),
        _ => {
            let Some(commit) = decoded::<Commit>(body) else { return };
            for (number, group) in commit.groups.iter().enumerate().take(4) {
                let geometry = commit.geometry(number).expect("a checked commit has a geometry");
                for member in 0..group.len().min(8) {
                    let payload = geometry.payload(member);
                    let (bytes, chunks) =
                        (geometry.parity_bytes(member), geometry.parity_chunks(member));
                    assert!(bytes <= chunks << 16);
                    if let Some(cell) = geometry.cell(member, payload.saturating_sub(1) >> 16) {
                        let spot = geometry.spot(cell);
                        assert!(spot.offset + spot.bytes <= payload.max(spot.offset));
                    }
                }
            }
        }
    }
});
