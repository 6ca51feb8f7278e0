//! Sets the `cfg`s of the interpreter that the crate is built for (`Py_GIL_DISABLED` and its like), and links its tests
//! with that interpreter if it has a shared library (`cfg(embedded)`).

use std::path::Path;

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo:rustc-check-cfg=cfg(embedded)");
    // The tests run the interpreter in their own process. Where it has no shared library, they are ignored. An
    // interpreter that was moved after it was built has its library beside its program, and not in the place that it
    // reports.
    let python = pyo3_build_config::get();
    let beside = python.executable.as_ref().and_then(|program| Path::new(program).parent()?.parent());
    let stated = python.lib_dir.as_ref().and_then(|folder| Path::new(folder).parent());
    let Some(name) = python.lib_name.as_ref().filter(|_| python.shared) else { return };
    let library = format!("lib{name}.so");
    let home = [stated, beside].into_iter().flatten().find(|home| home.join("lib").join(&library).exists());
    let Some(home) = home.map(Path::display) else { return };
    println!("cargo:rustc-cfg=embedded");
    println!("cargo:rustc-env=ROPEWALK_TEST_PYTHONHOME={home}");
    for argument in [
        format!("-L{home}/lib"),
        format!("-l{name}"),
        format!("-Wl,-rpath,{home}/lib"),
        // See src/forced_unwind.rs.
        "-Wl,--defsym=DW.ref.rust_eh_personality=ROPEWALK_PERSONALITY".to_owned(),
    ] {
        println!("cargo:rustc-link-arg-tests={argument}");
    }
}
