//! PMI 1.1 against a launcher that answers as hydra and Slurm do, or as none should.

use super::*;
use std::collections::VecDeque;

/// Answers in the order in which they are due, and what was said.
struct Script {
    answers: VecDeque<u8>,
    said: Vec<u8>,
    /// Bytes given at once.
    step: usize,
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.step.min(buffer.len()).min(self.answers.len());
        for (to, from) in buffer.iter_mut().zip(self.answers.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const BEGIN: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
                     cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n\
                     cmd=my_kvsname kvsname=kvs_7_0\n";

fn script(answers: &str, step: usize) -> Script {
    let answers = [BEGIN, answers].concat().into_bytes().into();
    Script { answers, said: Vec::new(), step }
}

fn client(answers: &str) -> Pmi<Script> {
    Pmi::new(script(answers, 7)).unwrap()
}

#[test]
fn a_whole_conversation() {
    for step in [1, 13, 1000] {
        let mut pmi = Pmi::new(script(
            "cmd=put_result rc=0 msg=success\ncmd=barrier_out\n\
             cmd=get_result rc=0 msg=success value=a:b=c\n\
             cmd=get_result rc=-1 msg=key_not_found value=unknown\ncmd=finalize_ack\n",
            step,
        ))
        .unwrap();
        pmi.put("key", "a:b=c").unwrap();
        pmi.barrier().unwrap();
        assert_eq!(pmi.get("key").unwrap().as_deref(), Some("a:b=c"));
        assert_eq!(pmi.get("other").unwrap(), None);
        let said = String::from_utf8(pmi.stream.said.clone()).unwrap();
        pmi.finalize().unwrap();
        let want = "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_my_kvsname\n\
                    cmd=put kvsname=kvs_7_0 key=key value=a:b=c\ncmd=barrier_in\n\
                    cmd=get kvsname=kvs_7_0 key=key\ncmd=get kvsname=kvs_7_0 key=other\n";
        assert_eq!(said, want);
    }
}

#[test]
fn what_is_refused_is_told() {
    let refused = client("cmd=put_result rc=-1 msg=no more room\n").put("k", "v").unwrap_err();
    assert_eq!(refused.to_string(), "its launcher refuses a value: no more room");
    assert!(matches!(client("").put("k", &"x".repeat(1100)), Err(PmiError::TooLong(1100))));
    let other = client("cmd=barrier_out\n").put("k", "v").unwrap_err();
    assert_eq!(other.to_string(), "its launcher answers barrier_out where put_result is due");
    assert!(matches!(client("").barrier(), Err(PmiError::Over)));
    assert!(matches!(client("cmd=barrier_o").barrier(), Err(PmiError::Over)));
    let old = b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n".to_vec();
    let old = Script { answers: old.into(), said: Vec::new(), step: 9 };
    assert!(matches!(Pmi::new(old), Err(PmiError::Refused { .. })));
}

#[test]
fn malformed_lines_are_errors() {
    for bad in [
        &b""[..],
        b" ",
        b"barrier_out",
        b"cmd=",
        b"rc=0 cmd=barrier_out",
        b"cmd=x =5",
        b"cmd=x blank",
        b"cmd=\xff\xfe",
        b"cmd=x rc=\0",
        b"cmd=x cmd",
    ] {
        assert!(matches!(Line::parse(bad), Err(PmiError::Malformed(_))), "{}", bad.escape_ascii());
    }
    let long = [&b"cmd=barrier_out msg="[..], &vec![b'x'; LINE_BYTES + 2000]].concat();
    let long = client(std::str::from_utf8(&long).unwrap()).barrier().unwrap_err();
    assert!(long.to_string().contains("over 16384 bytes"), "{long}");
    let line = Line::parse(b"cmd=get_result\trc=0  value=1 value=2 msg=a b").unwrap();
    assert_eq!((line.get("value"), line.get("msg")), (Some("1"), Some("a b")));
}
