//! Holds `sys` against the library's headers, where they are installed (`libfabric-dev`).

use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use crate::sys::*;

const HEADERS: &str = "/usr/include/rdma/fi_endpoint.h";

/// Pairs of C expressions and what they must come to.
fn expected() -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    let mut note = |text: &str, value: u64| all.push((text.to_string(), value));
    macro_rules! offsets {
        ($kind:ty, $name:literal, $($field:ident = $c:literal),*) => {$(
            note(
                concat!("offsetof(struct ", $name, ", ", $c, ")"),
                offset_of!($kind, $field) as u64,
            );
        )*};
    }
    macro_rules! whole {
        ($($kind:ty = $name:literal),*) => {$(
            note(concat!("sizeof(struct ", $name, ")"), size_of::<$kind>() as u64);
        )*};
    }
    macro_rules! constants {
        ($($name:ident),*) => {$( note(stringify!($name), $name as u64); )*};
    }
    offsets!(Fid, "fid", fclass = "fclass", context = "context", ops = "ops");
    offsets!(FidOps, "fi_ops", close = "close", bind = "bind", control = "control");
    offsets!(TxAttr, "fi_tx_attr", msg_order = "msg_order", inject_size = "inject_size");
    offsets!(TxAttr, "fi_tx_attr", iov_limit = "iov_limit");
    offsets!(RxAttr, "fi_rx_attr", msg_order = "msg_order", size = "size");
    offsets!(EpAttr, "fi_ep_attr", kind = "type", max_msg_size = "max_msg_size");
    offsets!(DomainAttr, "fi_domain_attr", threading = "threading", mr_mode = "mr_mode");
    offsets!(DomainAttr, "fi_domain_attr", control_progress = "control_progress");
    offsets!(DomainAttr, "fi_domain_attr", data_progress = "data_progress");
    offsets!(DomainAttr, "fi_domain_attr", resource_mgmt = "resource_mgmt");
    offsets!(FabricAttr, "fi_fabric_attr", name = "name", prov_name = "prov_name");
    offsets!(Info, "fi_info", next = "next", caps = "caps", mode = "mode", handle = "handle");
    offsets!(Info, "fi_info", tx_attr = "tx_attr", rx_attr = "rx_attr", ep_attr = "ep_attr");
    offsets!(Info, "fi_info", domain_attr = "domain_attr", fabric_attr = "fabric_attr");
    offsets!(FidFabric, "fid_fabric", ops = "ops");
    offsets!(FabricOps, "fi_ops_fabric", domain = "domain", passive_ep = "passive_ep");
    offsets!(FabricOps, "fi_ops_fabric", eq_open = "eq_open", trywait = "trywait");
    offsets!(FidEq, "fid_eq", ops = "ops");
    offsets!(EqOps, "fi_ops_eq", read = "read", readerr = "readerr");
    offsets!(EqErrEntry, "fi_eq_err_entry", err = "err");
    offsets!(EqCmEntry, "fi_eq_cm_entry", fid = "fid", info = "info");
    offsets!(FidDomain, "fid_domain", ops = "ops", mr = "mr");
    offsets!(DomainOps, "fi_ops_domain", cq_open = "cq_open", endpoint = "endpoint");
    offsets!(MrOps, "fi_ops_mr", reg = "reg");
    offsets!(FidMr, "fid_mr", mem_desc = "mem_desc");
    offsets!(FidCq, "fid_cq", ops = "ops");
    offsets!(CqOps, "fi_ops_cq", read = "read", readerr = "readerr");
    offsets!(CqMsgEntry, "fi_cq_msg_entry", op_context = "op_context", len = "len");
    offsets!(FidEp, "fid_ep", cm = "cm", msg = "msg");
    offsets!(FidPep, "fid_pep", cm = "cm");
    offsets!(CmOps, "fi_ops_cm", getname = "getname", connect = "connect");
    offsets!(CmOps, "fi_ops_cm", listen = "listen", accept = "accept", reject = "reject");
    offsets!(MsgOps, "fi_ops_msg", recv = "recv", sendmsg = "sendmsg", inject = "inject");
    offsets!(Msg, "fi_msg", msg_iov = "msg_iov", desc = "desc", iov_count = "iov_count");
    offsets!(Msg, "fi_msg", addr = "addr", context = "context", data = "data");
    whole!(EqAttr = "fi_eq_attr", CqAttr = "fi_cq_attr", EqErrEntry = "fi_eq_err_entry");
    whole!(CqErrEntry = "fi_cq_err_entry", CqMsgEntry = "fi_cq_msg_entry", Msg = "fi_msg");
    whole!(EqCmEntry = "fi_eq_cm_entry", Fid = "fid");
    offsets!(EqAttr, "fi_eq_attr", wait_obj = "wait_obj");
    offsets!(CqAttr, "fi_cq_attr", format = "format", wait_obj = "wait_obj");
    constants!(FI_MSG, FI_RECV, FI_SEND, FI_TRANSMIT, FI_SOURCE, FI_NUMERICHOST, FI_CONTEXT);
    constants!(FI_CONTEXT2, FI_LOCAL_MR, FI_EP_MSG, FI_THREAD_SAFE, FI_PROGRESS_MANUAL);
    constants!(FI_RM_ENABLED, FI_ORDER_SAS, FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED);
    constants!(FI_MR_PROV_KEY, FI_WAIT_FD, FI_CQ_FORMAT_MSG, FI_GETWAIT, FI_ENABLE);
    constants!(FI_CONNREQ, FI_CONNECTED, FI_EAGAIN, FI_EAVAIL);
    all
}

#[test]
fn the_bindings_are_as_the_headers_say() {
    if !Path::new(HEADERS).exists() {
        println!("NOT RUN: libfabric-dev is not installed");
        let without = std::env::var("EYRIE_TESTS_WITHOUT").unwrap_or_default();
        assert!(without.split(',').any(|name| name == "libfabric"), "no libfabric-dev");
        return;
    }
    let expected = expected();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/fi_cm.h>\n\
         #include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n\
         #include <rdma/fi_errno.h>\nint main(void) {\n",
    );
    for (expression, _) in &expected {
        text += &format!("    printf(\"%llu\\n\", (unsigned long long)({expression}));\n");
    }
    text += "    return 0;\n}\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(built.success());
    let output = Command::new(&program).output().unwrap();
    let values = String::from_utf8(output.stdout).unwrap();
    let values: Vec<u64> = values.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), expected.len());
    for ((expression, value), real) in expected.iter().zip(values) {
        assert_eq!(*value, real, "{expression}");
    }
}
