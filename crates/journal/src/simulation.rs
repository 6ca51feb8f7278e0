//! The whole protocol on a disk that is not one: it loses power at any step, keeps any part of what was not synced,
//! fills up, fails, and lies. Everything comes from the seed, which a failure names; `ROPEWALK_SEEDS` says how many
//! there are.

#[cfg(test)]
mod calls;
pub(crate) mod disk;
#[cfg(test)]
mod lives;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod written;
