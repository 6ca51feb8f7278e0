//! The open inference protocol (KServe V2): a tool is a model, its parameters and its result are tensors.

mod inputs;
mod model;
mod outputs;
mod service;
mod words;

#[cfg(any(test, fuzzing))]
pub(crate) use self::{
    inputs::given,
    model::Model,
    outputs::{outputs, response},
};
pub(crate) use service::{Models, Service};
