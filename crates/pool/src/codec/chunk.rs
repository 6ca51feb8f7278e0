//! A chunk whose items are pickled separately, so that no two of them share an object where they arrive.
//!
//! The chunk is one pickle all the same: a list, each item of which is a call of the opener with the item's own pickle
//! and the buffers beside it. Its reader needs no knowledge of this.
//!
//! Source: `pickletools.py` of CPython, for the opcodes of protocol 5.

/// One item of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Its pickle.
    pub stream: &'a [u8],
    /// How many buffers belong to the pickle.
    pub buffers: usize,
    /// Whether the item succeeded, if the chunk reports that for each item, as a pair.
    pub went_well: Option<bool>,
}

/// The function that opens an item where the chunk arrives: the names of its module and of itself. It is called with
/// the item's pickle and the item's buffers.
#[derive(Clone, Copy, Debug)]
pub struct Opener {
    /// The module's name, of less than 256 bytes.
    pub module: &'static str,
    /// The function's own, likewise.
    pub function: &'static str,
}

/// Joins items into the pickle of their list. Their buffers come in the items' order.
pub fn join(opener: Opener, items: &[Item<'_>]) -> Vec<u8> {
    let total: usize = items.iter().map(|item| item.stream.len() + item.buffers + 16).sum();
    let mut out = Vec::with_capacity(total + 64);
    out.extend(b"\x80\x05"); // PROTO 5
    for name in [opener.module, opener.function] {
        out.extend(b"\x8c"); // SHORT_BINUNICODE
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
    }
    out.extend(b"\x93\x940"); // STACK_GLOBAL, MEMOIZE as number 0, POP
    out.extend(b"]("); // EMPTY_LIST, MARK
    for item in items {
        match item.went_well {
            Some(true) => out.push(b'\x88'),  // NEWTRUE
            Some(false) => out.push(b'\x89'), // NEWFALSE
            None => {}
        }
        out.extend(b"h\0"); // BINGET number 0
        if item.buffers > 0 {
            out.push(b'('); // MARK
        }
        match u32::try_from(item.stream.len()) {
            Ok(length) => {
                out.push(b'B'); // BINBYTES
                out.extend(length.to_le_bytes());
            }
            Err(_) => {
                out.push(b'\x8e'); // BINBYTES8
                out.extend((item.stream.len() as u64).to_le_bytes());
            }
        }
        out.extend(item.stream);
        if item.buffers > 0 {
            out.resize(out.len() + item.buffers, b'\x97'); // NEXT_BUFFER
            out.push(b't'); // TUPLE
        } else {
            out.push(b'\x85'); // TUPLE1
        }
        out.push(b'R'); // REDUCE
        if item.went_well.is_some() {
            out.push(b'\x86'); // TUPLE2
        }
    }
    out.extend(b"e."); // APPENDS, STOP
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENER: Opener = Opener { module: "m", function: "f" };

    #[test]
    fn a_chunk_is_a_list_of_calls() {
        let items = [
            Item { stream: b"one", buffers: 0, went_well: None },
            Item { stream: b"2", buffers: 2, went_well: None },
        ];
        let expected =
            b"\x80\x05\x8c\x01m\x8c\x01f\x93\x940](h\0B\x03\0\0\0one\x85Rh\0(B\x01\0\0\x002\x97\x97tRe.";
        assert_eq!(join(OPENER, &items), expected);
        assert_eq!(join(OPENER, &[]), b"\x80\x05\x8c\x01m\x8c\x01f\x93\x940](e.");
    }

    #[test]
    fn an_item_can_say_whether_it_went_well() {
        let item = |ok| join(OPENER, &[Item { stream: b"x", buffers: 0, went_well: Some(ok) }]);
        assert!(item(true).ends_with(b"](\x88h\0B\x01\0\0\0x\x85R\x86e."));
        assert!(item(false).ends_with(b"](\x89h\0B\x01\0\0\0x\x85R\x86e."));
    }
}
