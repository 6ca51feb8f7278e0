//! The bytes of a journal's file: a header of 64 bytes, then records, each at a multiple of 8 bytes.
//!
//! | bytes of the header | what |
//! |---|---|
//! | 0–7 | the magic `RWJRNL01`; its last two digits are the version of the format |
//! | 8–15 | a random number that is the file's own; every checksum depends on it |
//! | 16–23 | the sequence number that comes before the first record |
//! | 24–59 | zeros |
//! | 60–63 | CRC-32C of all that |
//!
//! | bytes of a record | what |
//! |---|---|
//! | 0–3 | the length of the payload |
//! | 4–7 | CRC-32C of the file's number, the record's offset, bytes 0–3, bytes 8–31 and the payload |
//! | 8–15 | its sequence number |
//! | 16–23 | the offset up to which the file was on the disk when the record was written |
//! | 24–27 | the checksum of the record before; of the first record, that of the header |
//! | 28 | its [`Kind`] |
//! | 29–31 | a random number of the run that wrote it; a run begins with an opening, a draft, or a write that failed |
//! | 32– | the payload, and zeros up to a multiple of 8 |
//!
//! All numbers are little-endian. A record is valid at its own offset of its own file alone, and follows no record but
//! the one before it. So what lies on the disk from other files, was moved, or was left by writes that failed, is no
//! record of this journal. The number of the run makes records differ that would else be the same ones again.
//!
//! Source: CRC-32C is that of RFC 3720, appendix B.4.

/// The size of the file's header.
pub(crate) const HEADER: u64 = 64;
/// The size of what comes before a payload.
pub(crate) const HEAD: usize = 32;
/// The largest payload in bytes.
pub const MOST_BYTES: usize = 1 << 30;

const MAGIC: [u8; 8] = *b"RWJRNL01";
const ALIGNMENT: u64 = 8;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// One that was appended.
    Appended = 1,
    /// A part of the state that stands for all records before; its sequence number is that of the last of them.
    Snapshot = 2,
    /// The journal was closed in order. It has the sequence number of the record before.
    Closed = 3,
    /// A mark: all before it was on the disk when it was written. It has the sequence number of the record before.
    Synced = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Appended, Self::Snapshot, Self::Closed, Self::Synced];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The file's own number.
    pub(crate) id: u64,
    /// The sequence number before the first record.
    pub(crate) base: u64,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// It is no journal.
    Foreign,
    /// It is a journal of another version of the format.
    Version,
    /// It is a journal whose header is damaged.
    Damaged,
}

impl Header {
    pub(crate) fn encode(self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header's checksum, which the first record continues.
    pub(crate) fn sum(self) -> u32 {
        u32_at(&self.encode(), 60)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NoHeader> {
        let Some(bytes) = bytes.first_chunk::<{ HEADER as usize }>() else { return Err(NoHeader::Foreign) };
        if bytes[..6] != MAGIC[..6] {
            return Err(NoHeader::Foreign);
        }
        if u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return Err(NoHeader::Damaged);
        }
        if bytes[..8] != MAGIC {
            return Err(NoHeader::Version);
        }
        Ok(Self { id: u64_at(bytes, 8), base: u64_at(bytes, 16) })
    }
}

/// What a record says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) sum: u32,
    pub(crate) sequence: u64,
    pub(crate) synced: u64,
    /// The checksum of the record before.
    pub(crate) previous: u32,
    pub(crate) kind: Kind,
}

impl Head {
    /// A record's first bytes; `None` for what no record begins with.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEAD>()?;
        let length = usize::try_from(u32_at(bytes, 0)).ok().filter(|length| *length <= MOST_BYTES)?;
        let kind = Kind::of(bytes[28])?;
        let (sequence, synced) = (u64_at(bytes, 8), u64_at(bytes, 16));
        Some(Self { length, sum: u32_at(bytes, 4), sequence, synced, previous: u32_at(bytes, 24), kind })
    }

    /// The size of the record on the disk.
    pub(crate) fn size(&self) -> u64 {
        size_of_record(self.length)
    }

    /// Whether the payload, and all that the head says, was written to that offset of that file.
    pub(crate) fn is_proved(&self, bytes: &[u8], payload: &[u8], id: u64, offset: u64) -> bool {
        checksum(bytes, payload, id, offset) == self.sum
    }
}

/// The size on the disk of a record with so long a payload.
pub(crate) fn size_of_record(length: usize) -> u64 {
    (HEAD as u64 + length as u64).next_multiple_of(ALIGNMENT)
}

/// What the next record of a file continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) id: u64,
    pub(crate) synced: u64,
    /// The checksum of the record before.
    pub(crate) previous: u32,
    /// The run's number, of which three bytes count.
    pub(crate) run: u64,
}

/// Appends a record to what will be written from `start` on, and to the chain.
///
/// The payload has [`MOST_BYTES`] at most.
pub(crate) fn encode(
    to: &mut Vec<u8>,
    start: u64,
    chain: &mut Chain,
    kind: Kind,
    sequence: u64,
    payload: &[u8],
) {
    let (at, offset) = (to.len(), start + to.len() as u64);
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&sequence.to_le_bytes());
    to.extend_from_slice(&chain.synced.to_le_bytes());
    to.extend_from_slice(&chain.previous.to_le_bytes());
    to.push(kind as u8);
    to.extend_from_slice(&chain.run.to_le_bytes()[..3]);
    let sum = checksum(&to[at..at + HEAD], payload, chain.id, offset);
    chain.previous = sum;
    to[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    to.extend_from_slice(payload);
    let end = at as u64 + size_of_record(payload.len());
    to.resize(usize::try_from(end).unwrap_or(usize::MAX), 0);
}

fn checksum(head: &[u8], payload: &[u8], id: u64, offset: u64) -> u32 {
    let mut fixed = [0; HEAD + 12];
    fixed[..8].copy_from_slice(&id.to_le_bytes());
    fixed[8..16].copy_from_slice(&offset.to_le_bytes());
    fixed[16..20].copy_from_slice(&head[..4]);
    fixed[20..44].copy_from_slice(&head[8..HEAD]);
    crc32c::crc32c_append(crc32c::crc32c(&fixed), payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: Chain = Chain { id: 7, synced: 64, previous: 3, run: 5 };

    fn record(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut chain = CHAIN;
        encode(&mut bytes, 128, &mut chain, Kind::Appended, 9, payload);
        assert_eq!(chain.previous, u32_at(&bytes, 4));
        bytes
    }

    #[test]
    fn a_record_is_what_was_encoded() {
        for length in 0..40 {
            let payload = vec![0xa5; length];
            let bytes = record(&payload);
            let head = Head::decode(&bytes).expect("a head");
            assert_eq!((head.size(), bytes.len() % 8), (bytes.len() as u64, 0));
            assert_eq!(
                (head.length, head.sequence, head.synced, head.previous, head.kind),
                (length, 9, 64, 3, Kind::Appended)
            );
            assert_eq!(bytes[HEAD..HEAD + length], payload);
            assert!(head.is_proved(&bytes, &payload, 7, 128));
            assert!(!head.is_proved(&bytes, &payload, 8, 128), "of another file");
            assert!(!head.is_proved(&bytes, &payload, 7, 136), "of another offset");
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let whole = record(b"payload");
        for bit in 0..(HEAD + 7) * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = Head::decode(&bytes).filter(|head| {
                let payload = bytes.get(HEAD..HEAD + head.length);
                payload.is_some_and(|payload| head.is_proved(&bytes, payload, 7, 128))
            });
            assert_eq!(read, None, "bit {bit}");
        }
    }

    /// Journals outlive the version that wrote them: these are the bytes of all that come.
    #[test]
    fn the_bytes_stay_the_same() {
        let header = Header { id: 0x0807_0605_0403_0201, base: 5 };
        let mut expected = [0; 64];
        expected[..17].copy_from_slice(b"RWJRNL01\x01\x02\x03\x04\x05\x06\x07\x08\x05");
        expected[60..].copy_from_slice(&0x8717_ceac_u32.to_le_bytes());
        assert_eq!(header.encode(), expected);
        assert_eq!(header.sum(), u32_at(&expected, 60));
        let mut expected = [0; 40];
        expected[0] = 7;
        expected[4..8].copy_from_slice(&0xddd4_16dc_u32.to_le_bytes());
        (expected[8], expected[16], expected[24], expected[28], expected[29]) = (9, 64, 3, 1, 5);
        expected[32..39].copy_from_slice(b"payload");
        assert_eq!(record(b"payload"), expected);
    }

    #[test]
    fn headers_that_are_none() {
        let header = Header { id: 1, base: 2 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        assert_eq!(Header::decode(&bytes[..63]), Err(NoHeader::Foreign));
        assert_eq!(Header::decode(&[b'{'; 64]), Err(NoHeader::Foreign));
        for bit in 48..512 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes), Err(NoHeader::Damaged), "bit {bit}");
        }
        let mut next = bytes;
        next[7] = b'2';
        let sum = crc32c::crc32c(&next[..60]);
        next[60..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::decode(&next), Err(NoHeader::Version));
    }
}
