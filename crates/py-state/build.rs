//! Sets the `cfg`s of the interpreter that the crate is built for: `Py_GIL_DISABLED` and its like.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
