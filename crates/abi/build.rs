//! Declares the cfg by which the shared source tells the two ABIs apart (unset here: standard ABI).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(abi_mpich)");
}
