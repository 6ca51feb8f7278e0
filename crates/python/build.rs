//! Tells the crate which interpreter it is built for (`cfg(Py_GIL_DISABLED)` and its like), and the linker which
//! routine unwinds the extension's frames.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    // See src/forced_unwind.rs.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--defsym=DW.ref.rust_eh_personality=ROPEWALK_PERSONALITY");
}
