//! The text as it grows: the memory of the `bytes` object that is returned at last, so that nothing is copied then.

use std::ptr::null;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use crate::node::Pointer;
use crate::record::{Head, Short};

/// What a buffer begins with: enough for a small record.
const FIRST: usize = 1024;
/// A text is given away with the room behind it if that is at most this part of it. To give a large block a smaller
/// size makes `malloc` take the next one of the first size from the system again, with a page fault for each page,
/// because it keeps blocks of the sizes that were given back.
const SLACK: usize = 8;
/// So long is a text at least that is given away with the room behind it.
const LEAST_SLACK: usize = 1 << 16;
/// Eight characters.
const WORD: usize = size_of::<u64>();
/// How many characters of a longer text are looked at at once.
const BLOCK: usize = size_of::<Block>();
/// The characters of a block.
type Block = [u64; 2];
/// The most characters of a number of 64 bits, with its sign.
const LONGEST_INTEGER: usize = 20;
/// The numbers from 00 to 99.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut at = 0;
    while at < 100 {
        pairs[2 * at] = b'0' + (at / 10) as u8;
        pairs[2 * at + 1] = b'0' + (at % 10) as u8;
        at += 1;
    }
    pairs
};
/// The high bits of eight characters.
const HIGH: u64 = 0x8080_8080_8080_8080;
/// Eight characters that need no escape.
const SPACES: u64 = 0x2020_2020_2020_2020;

/// A `bytes` object that only this buffer has.
pub(super) struct Buffer {
    /// Null after memory has run out.
    bytes: Pointer,
    data: *mut u8,
    len: usize,
    /// How many bytes there is room for.
    room: usize,
}

impl Buffer {
    /// A buffer with room for so many bytes at least.
    pub(super) fn new(room: usize) -> Result<Self, Raised> {
        let room = room.max(FIRST);
        // SAFETY: the thread is attached; without a source the bytes are not set, and none is read before it is.
        let bytes = unsafe { ffi::PyBytes_FromStringAndSize(null(), room as ffi::Py_ssize_t) };
        if bytes.is_null() {
            return Err(Raised);
        }
        // SAFETY: a `bytes` object.
        let data = unsafe { ffi::PyBytes_AsString(bytes) }.cast();
        Ok(Self { bytes, data, len: 0, room })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What was written from `start` on.
    pub(super) fn since(&self, start: usize) -> &[u8] {
        assert!(start <= self.len, "a text begins before it ends");
        // SAFETY: the bytes before `len` were written.
        unsafe { std::slice::from_raw_parts(self.data.add(start), self.len - start) }
    }

    /// Makes room for so many bytes more.
    #[inline]
    fn reserve(&mut self, more: usize) -> Result<(), Raised> {
        if self.room - self.len < more { self.grow(more) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), Raised> {
        let wanted = self.len.saturating_add(more).max(self.room.saturating_mul(2));
        self.resize(wanted)?;
        self.room = wanted;
        Ok(())
    }

    fn resize(&mut self, wanted: usize) -> Result<(), Raised> {
        let Ok(size) = ffi::Py_ssize_t::try_from(wanted) else {
            // SAFETY: the thread is attached.
            unsafe { ffi::PyErr_NoMemory() };
            return Err(Raised);
        };
        // SAFETY: only this buffer has the object, so that it may move. On failure it is gone, and null.
        unsafe {
            if ffi::_PyBytes_Resize(&raw mut self.bytes, size) < 0 {
                (self.len, self.room) = (0, 0);
                return Err(Raised);
            }
            self.data = ffi::PyBytes_AsString(self.bytes).cast();
        }
        Ok(())
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) -> Result<(), Raised> {
        self.reserve(1)?;
        // SAFETY: there is room.
        unsafe { *self.data.add(self.len) = byte };
        self.len += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), Raised> {
        self.reserve(bytes.len())?;
        // SAFETY: there is room, in memory that only this buffer has.
        unsafe { copy(bytes, self.data.add(self.len)) };
        self.len += bytes.len();
        Ok(())
    }

    /// Ends an array or an object that began before `start`: the mark takes the place of the last item's comma.
    #[inline]
    pub(super) fn close(&mut self, start: usize, mark: u8) -> Result<(), Raised> {
        if self.len > start {
            self.len -= 1;
        }
        self.push(mark)
    }

    /// Takes the bytes from `start` on back.
    pub(super) fn truncate(&mut self, start: usize) {
        self.len = self.len.min(start);
    }

    #[inline]
    pub(super) fn integer(&mut self, number: i64) -> Result<(), Raised> {
        self.reserve(LONGEST_INTEGER)?;
        if number < 0 {
            // SAFETY: there is room.
            unsafe { *self.data.add(self.len) = b'-' };
            self.len += 1;
        }
        let mut rest = number.unsigned_abs();
        let mut at = rest.checked_ilog10().map_or(1, |log| log as usize + 1);
        let end = self.len + at;
        // The digits go to their places at once: a copy of them would wait for them to be written.
        // SAFETY: there is room for the digits, whose number is that of the logarithm; a pair is less than 100.
        unsafe {
            let first = self.data.add(self.len);
            while rest >= 10 {
                at -= 2;
                first.add(at).copy_from_nonoverlapping(PAIRS.as_ptr().add(2 * (rest % 100) as usize), 2);
                rest /= 100;
            }
            if at > 0 {
                *first = b'0' + rest as u8;
            }
        }
        self.len = end;
        Ok(())
    }

    /// Writes the shortest text that gives the number again; `null` for what JSON has no number for.
    pub(super) fn float(&mut self, number: f64) -> Result<(), Raised> {
        if number.is_finite() {
            self.extend(zmij::Buffer::new().format_finite(number).as_bytes())
        } else {
            self.extend(b"null")
        }
    }

    /// Writes UTF-8 as a string.
    #[inline]
    pub(super) fn string(&mut self, text: &[u8]) -> Result<(), Raised> {
        self.quoted::<false>(text)
    }

    /// Writes UTF-8 as the name of an entry, with a colon.
    #[inline]
    pub(super) fn name(&mut self, text: &[u8]) -> Result<(), Raised> {
        self.quoted::<true>(text)
    }

    #[inline]
    fn quoted<const IS_NAME: bool>(&mut self, text: &[u8]) -> Result<(), Raised> {
        let count = text.len();
        // The quotes and the colon, and the word behind the text.
        self.reserve(count + 3 + WORD)?;
        // SAFETY: there is room for the quotes, the colon and the text with a word behind it.
        let plain = unsafe {
            let quote = self.data.add(self.len);
            *quote = b'"';
            copy_plain(text, quote.add(1))
        };
        if plain < count {
            self.escaped(text, plain)?;
            return if IS_NAME { self.push(b':') } else { Ok(()) };
        }
        // SAFETY: as above.
        unsafe {
            let end = self.data.add(self.len + 1 + count);
            *end = b'"';
            if IS_NAME {
                *end.add(1) = b':';
            }
        }
        self.len += count + 2 + usize::from(IS_NAME);
        Ok(())
    }

    /// Writes what stands before the value of a field.
    #[inline]
    pub(super) fn head(&mut self, head: &Head) -> Result<(), Raised> {
        let Some((short, len)) = head.short() else { return self.extend(head.text()) };
        self.reserve(size_of_val(short))?;
        // SAFETY: there is room for the text and what is behind it.
        unsafe { self.data.add(self.len).cast::<Short>().write_unaligned(*short) };
        self.len += len;
        Ok(())
    }

    /// Writes the rest of a string whose quote and first characters are there.
    #[cold]
    fn escaped(&mut self, text: &[u8], at: usize) -> Result<(), Raised> {
        self.len += 1 + at;
        let text = &text[at..];
        let mut plain = 0;
        for (at, &byte) in text.iter().enumerate() {
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                8 => b"\\b",
                12 => b"\\f",
                0..0x20 => {
                    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
                    &[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]
                }
                _ => continue,
            };
            self.extend(&text[plain..at])?;
            self.extend(escape)?;
            plain = at + 1;
        }
        self.extend(&text[plain..])?;
        self.push(b'"')
    }

    /// How much room the next text of this length should begin with: the same, if this text is given away with it.
    pub(super) fn next_room(&self) -> usize {
        if self.is_snug() { self.room } else { self.len + self.len / (2 * SLACK) }
    }

    /// Whether the room behind the text is given away with it. A short text takes no block of its own.
    fn is_snug(&self) -> bool {
        self.len > LEAST_SLACK && self.room - self.len <= self.len / SLACK
    }

    /// The text as `bytes`.
    pub(super) fn finish(mut self) -> Result<Object, Raised> {
        if self.is_snug() {
            // SAFETY: only this buffer has the object, which has room for a zero behind `room` bytes; its hash is not
            // known yet.
            unsafe {
                (*self.bytes.cast::<ffi::PyVarObject>()).ob_size = self.len as ffi::Py_ssize_t;
                *self.data.add(self.len) = 0;
            }
        } else {
            self.resize(self.len)?;
        }
        // SAFETY: a new reference, which this buffer passes on.
        unsafe { Object::own(std::mem::replace(&mut self.bytes, std::ptr::null_mut())) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: null, or a reference that this buffer owns.
        unsafe { ffi::Py_XDECREF(self.bytes) };
    }
}

/// Copies a text up to a character that needs an escape, and returns how many bytes need none: fewer than were copied,
/// perhaps.
///
/// # Safety
///
/// There is room for the text and a word behind it at `to`, which is not in the text.
#[inline]
unsafe fn copy_plain(text: &[u8], to: *mut u8) -> usize {
    let (from, count) = (text.as_ptr(), text.len());
    let mut at = 0;
    // SAFETY: the caller's; what is read is within the text.
    unsafe {
        while at + BLOCK <= count {
            let block = from.add(at).cast::<Block>().read_unaligned();
            if needs_escapes(block) {
                return at;
            }
            to.add(at).cast::<Block>().write_unaligned(block);
            at += BLOCK;
        }
        if at == count {
            return count;
        }
        if count >= BLOCK {
            // Some of these characters are there already.
            let last = count - BLOCK;
            let block = from.add(last).cast::<Block>().read_unaligned();
            if needs_escapes(block) {
                return at;
            }
            to.add(last).cast::<Block>().write_unaligned(block);
        } else if count >= WORD {
            let last = count - WORD;
            let words = [from.cast::<u64>().read_unaligned(), from.add(last).cast::<u64>().read_unaligned()];
            if needs_escapes(words) {
                return 0;
            }
            to.cast::<u64>().write_unaligned(words[0]);
            to.add(last).cast::<u64>().write_unaligned(words[1]);
        } else {
            let word = short(text);
            if needs_escape(word) {
                return 0;
            }
            to.cast::<u64>().write_unaligned(word);
        }
    }
    count
}

/// A text of one to seven characters in a word, with spaces behind it.
#[inline]
fn short(text: &[u8]) -> u64 {
    let count = text.len();
    debug_assert!(count > 0 && count < WORD, "a text that is shorter than a word");
    let byte = |at: usize| u64::from(text[at]) << (8 * at);
    let word = if count >= 4 {
        let half =
            |at: usize| u64::from(u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]));
        half(0) | half(count - 4) << (8 * (count - 4))
    } else {
        byte(0) | byte(count / 2) | byte(count - 1)
    };
    u64::from_le(word | SPACES << (8 * count))
}

/// Copies bytes. Most are a few, for which a call of the C library would take longer than the copy.
///
/// # Safety
///
/// There is room for them at `to`, which is not in `bytes`.
#[inline]
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    let (from, count) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the caller's; two parts of one size overlap, and together are all bytes.
    unsafe {
        match count {
            8..=16 => {
                let end = count - 8;
                let parts =
                    (from.cast::<u64>().read_unaligned(), from.add(end).cast::<u64>().read_unaligned());
                to.cast::<u64>().write_unaligned(parts.0);
                to.add(end).cast::<u64>().write_unaligned(parts.1);
            }
            4..8 => {
                let end = count - 4;
                let parts =
                    (from.cast::<u32>().read_unaligned(), from.add(end).cast::<u32>().read_unaligned());
                to.cast::<u32>().write_unaligned(parts.0);
                to.add(end).cast::<u32>().write_unaligned(parts.1);
            }
            0..4 => {
                for at in 0..count {
                    *to.add(at) = *from.add(at);
                }
            }
            _ => to.copy_from_nonoverlapping(from, count),
        }
    }
}

/// Whether one of sixteen characters is a quote, a backslash or a control character. A byte of a longer character of
/// UTF-8 is none.
#[cfg(target_arch = "x86_64")]
#[inline]
fn needs_escapes(block: Block) -> bool {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    // SAFETY: every processor of this kind has the instructions.
    unsafe {
        let text = _mm_set_epi64x(block[1].cast_signed(), block[0].cast_signed());
        let control = _mm_cmpeq_epi8(_mm_min_epu8(text, _mm_set1_epi8(0x1f)), text);
        let quote = _mm_cmpeq_epi8(text, _mm_set1_epi8(b'"'.cast_signed()));
        let backslash = _mm_cmpeq_epi8(text, _mm_set1_epi8(b'\\'.cast_signed()));
        _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(control, quote), backslash)) != 0
    }
}

/// Whether one of sixteen characters needs an escape.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn needs_escapes(block: Block) -> bool {
    needs_escape(block[0]) | needs_escape(block[1])
}

/// Whether one of eight characters is a quote, a backslash or a control character. A byte of a longer character of
/// UTF-8 is none.
///
/// Source: Anderson, "Bit Twiddling Hacks": whether a word has a zero byte, or a byte less than n.
#[inline]
fn needs_escape(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let marks = (word.wrapping_sub(SPACES) & !word)
        | (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash);
    marks & HIGH != 0
}
