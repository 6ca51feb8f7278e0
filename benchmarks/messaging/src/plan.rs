//! What the command line asked for: `CONTEST name=value …`.

use crate::{Link, Outcome, Transport};

/// One contest.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub contest: String,
    /// What connects the ends, how far, and whether by CURVE.
    pub link: Link,
    /// Bytes of a message.
    pub size: usize,
    /// Messages, or round trips, that are measured.
    pub count: usize,
    /// Where the two ends run.
    pub place: Place,
    /// Messages each second, for a sender that keeps to a rate.
    pub rate: usize,
    /// How many of them it sends in a row.
    pub burst: usize,
}

/// Where the two ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both on the first core that the process may use.
    One,
    /// Each on a core of its own.
    Two,
    /// Where the system puts them.
    Free,
}

impl Plan {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A name or a value that is not known.
    pub fn from_arguments(arguments: impl Iterator<Item = String>) -> Outcome<Plan> {
        let mut arguments = arguments;
        let contest = arguments.next().ok_or("which contest?")?;
        let link =
            Link { transport: Transport::Tcp, address: String::new(), curve: false, ends: 1, bind: false };
        let mut plan =
            Plan { contest, link, size: 64, count: 1000, place: Place::Free, rate: 1000, burst: 1 };
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').ok_or_else(|| format!("not name=value: {argument}"))?;
            match name {
                "transport" => plan.link.transport = Transport::named(value)?,
                "address" => plan.link.address = value.to_owned(),
                "curve" => plan.link.curve = value == "yes",
                "ends" => plan.link.ends = value.parse()?,
                "size" => plan.size = value.parse()?,
                "rate" => plan.rate = value.parse()?,
                "burst" => plan.burst = value.parse()?,
                "count" => plan.count = value.parse()?,
                "place" => {
                    plan.place = match value {
                        "one" => Place::One,
                        "two" => Place::Two,
                        "free" => Place::Free,
                        _ => return Err(format!("no such place: {value}").into()),
                    }
                }
                _ => return Err(format!("no such argument: {name}").into()),
            }
        }
        if plan.link.address.is_empty() {
            plan.link.address = plan.link.transport.free_address()?;
        }
        Ok(plan)
    }

    /// A message's body. It lasts for the program, as a body does that many messages share.
    pub fn body(&self) -> &'static [u8] {
        Box::leak(vec![b'x'; self.size].into_boxed_slice())
    }

    /// The link as the end sees it that binds.
    pub fn bound(&self) -> Link {
        Link { bind: true, ..self.link.clone() }
    }
}
