//! How the two ends of a contest reach each other.

use std::net::TcpListener;

use crate::Outcome;

/// The public key and the secret key of the end that binds: the example keys of ZeroMQ's manual.
pub const SERVER_KEYS: (&str, &str) =
    ("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6");

/// The keys of the end that connects.
pub const CLIENT_KEYS: (&str, &str) =
    ("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs");

/// What connects the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are ZeroMQ's names")]
pub enum Transport {
    Tcp,
    Ipc,
    Shm,
    Inproc,
}

/// How an end is bound or connected.
#[derive(Clone, Debug)]
pub struct Link {
    /// What connects the ends.
    pub transport: Transport,
    /// Host and port, path, or name.
    pub address: String,
    /// Whether the connections are encrypted, with the keys above.
    pub curve: bool,
    /// How many connect to the end that binds.
    pub ends: usize,
    /// Whether this end binds.
    pub bind: bool,
}

impl Transport {
    pub(crate) fn named(name: &str) -> Outcome<Transport> {
        Ok(match name {
            "tcp" => Transport::Tcp,
            "ipc" => Transport::Ipc,
            "shm" => Transport::Shm,
            "inproc" => Transport::Inproc,
            _ => return Err(format!("no such transport: {name}").into()),
        })
    }

    /// An address that nobody uses; for TCP, one that nobody used a moment ago.
    pub(crate) fn free_address(self) -> Outcome<String> {
        Ok(match self {
            Transport::Tcp => TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string(),
            Transport::Ipc | Transport::Shm => {
                let name = format!("ropewalk-bench-{}.sock", std::process::id());
                std::env::temp_dir().join(name).to_string_lossy().into_owned()
            }
            Transport::Inproc => "bench".to_owned(),
        })
    }
}

impl Link {
    /// The address as ZeroMQ writes it.
    pub fn endpoint(&self) -> String {
        let scheme = match self.transport {
            Transport::Tcp => "tcp",
            Transport::Ipc => "ipc",
            Transport::Shm => "shm",
            Transport::Inproc => "inproc",
        };
        format!("{scheme}://{}", self.address)
    }
}
