//! Bounds, rules and bytes of durations.

use super::*;

fn with(changes: &[(&str, u64)]) -> Intervals {
    let mut intervals = Intervals::default();
    changes.iter().for_each(|(key, ms)| intervals.set(key, *ms).unwrap());
    intervals
}

fn refused(changes: &[(&str, u64)]) -> String {
    with(changes).check().unwrap_err().to_string()
}

#[test]
fn defaults_hold_and_each_has_a_name_of_its_own() {
    Intervals::default().check().unwrap();
    let mut keys: Vec<&str> = SETTINGS.iter().map(|s| s.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), SETTINGS.len());
    let of_table: Vec<u64> = SETTINGS.iter().map(|s| s.default_ms).collect();
    assert_eq!(Intervals::default().values_ms(), of_table);
    for rule in &RULES {
        assert!(setting(rule.low).is_some() && setting(rule.high).is_some());
    }
}

#[test]
fn each_is_set_by_its_key_and_no_other_is() {
    for (at, setting) in SETTINGS.iter().enumerate() {
        let intervals = with(&[(setting.key, 123_456)]);
        for (other, (_, ms)) in intervals.shown().enumerate() {
            assert_eq!(ms == 123_456, at == other, "{}", setting.key);
        }
    }
    let unknown = Intervals::default().set("patience", 1).unwrap_err();
    assert_eq!(unknown.to_string(), "patience: there is no such duration");
}

#[test]
fn nonsense_is_refused_with_what_to_write_instead() {
    for setting in SETTINGS {
        assert!(setting.least_ms > 0 && setting.least_ms <= setting.default_ms, "{}", setting.key);
        assert!(refused(&[(setting.key, 0)]).contains("it takes "), "{}", setting.key);
        let long = refused(&[(setting.key, setting.most_ms + 1)]);
        assert!(long.contains(&seconds(setting.most_ms)), "{long}");
    }
    assert_eq!(refused(&[("end", 0)]), "end = 0: it takes 0.1 to 3600 seconds");
    assert_eq!(
        refused(&[("heartbeat", 500)]),
        "heartbeat = 0.5 is too long for silence-least = 2: ten heartbeats may be late before a \
         node counts as dead; set heartbeat to 0.2 or less, or silence-least to 5 or more"
    );
    assert_eq!(refused(&[("lease", 2_500)]), "lease = 2.5: write whole seconds");
    assert!(refused(&[("silence-most", 1_000)]).starts_with("silence-least = 2 is too long"));
    assert!(refused(&[("machine-silence", 2_001)]).contains("set machine-silence to 2 or less"));
}

#[test]
fn ranks_stand_before_the_next_controller_starts_them_elsewhere() {
    let text = refused(&[("stand-after", 28_000)]);
    assert!(text.contains("set stand-after to 27 or less, or rejoin to 21 or more"), "{text}");
    with(&[("stand-after", 27_000)]).check().unwrap();
    with(&[("stand-after", 28_000), ("rejoin", 21_000)]).check().unwrap();
    assert!(refused(&[("rejoin", 10_000)]).contains("rejoin to 18 or more"));
}

#[test]
fn what_a_message_says_can_be_done() {
    // Both ways out of each rule.
    for rule in &RULES {
        let high = with(&[(rule.low, setting(rule.low).unwrap().most_ms)]);
        let Err(TimingError::Order { high_least_ms, .. }) = high.obeys(rule) else { continue };
        let mut mended = high;
        mended.set(rule.high, high_least_ms).unwrap();
        assert_eq!(mended.obeys(rule), Ok(()));
        let low = with(&[(rule.high, setting(rule.high).unwrap().least_ms)]);
        let Err(TimingError::Order { low_most_ms, .. }) = low.obeys(rule) else { continue };
        let mut mended = low;
        mended.set(rule.low, low_most_ms).unwrap();
        assert_eq!(mended.obeys(rule), Ok(()));
    }
}

#[test]
fn only_what_differs_is_on_the_wire() {
    assert_eq!(postcard::to_stdvec(&Intervals::default()).unwrap(), [0]);
    let changed = with(&[("end", 300), ("heartbeat", 50)]);
    let bytes = postcard::to_stdvec(&changed).unwrap();
    let golden = b"\x02\x09heartbeat\x32\x03end\xac\x02";
    assert_eq!(bytes, golden);
    assert_eq!(postcard::from_bytes::<Intervals>(golden).unwrap(), changed);
    for wrong in [&b"\x01\x03new\x05"[..], b"\x01\x03end\x00", b"\x02\x03end\xac\x02"] {
        assert!(postcard::from_bytes::<Intervals>(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn seconds_are_shown_as_they_are_written() {
    let shown = [0, 5, 100, 750, 1_000, 12_340].map(seconds);
    assert_eq!(shown, ["0", "0.005", "0.1", "0.75", "1", "12.34"]);
}
