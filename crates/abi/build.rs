//! Declares the cfgs by which the shared source tells the ABIs apart (unset here: standard ABI).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(abi_mpich)");
    println!("cargo:rustc-check-cfg=cfg(abi_openmpi)");
}
