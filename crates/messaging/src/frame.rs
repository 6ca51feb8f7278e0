//! One part of a message.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};

/// Bodies up to this many bytes are kept inside the frame, so that a small message pins no buffer.
pub(crate) const INLINE: usize = 71;

/// The properties of the peer that sent a frame: names and values, in the order of their arrival.
pub(crate) type Properties = Vec<(String, String)>;

#[derive(Clone)]
enum Body {
    Inline(u8, [u8; INLINE]),
    Shared(Bytes),
}

/// Whose a shared body is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Perhaps others have it, too.
    Common,
    /// A part of a buffer that was received into, which no other frame has.
    Own,
    /// The program's: its owner learns when it was sent, so it is sent from where it lies, however small.
    Lent,
}

#[derive(Clone, Default)]
struct Extra {
    group: String,
    properties: Option<Arc<Properties>>,
}

/// One part of a message. A clone shares a large body.
pub struct Frame {
    body: Body,
    /// What is known of a shared body.
    standing: Standing,
    more: bool,
    routing_id: u32,
    extra: Option<Box<Extra>>,
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        let standing = if self.standing == Standing::Lent { Standing::Lent } else { Standing::Common };
        Self {
            body: self.body.clone(),
            standing,
            more: self.more,
            routing_id: self.routing_id,
            extra: self.extra.clone(),
        }
    }
}

impl Frame {
    /// A frame with these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let body = match u8::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= INLINE => {
                let mut inline = [0; INLINE];
                inline[..bytes.len()].copy_from_slice(bytes);
                Body::Inline(length, inline)
            }
            _ => Body::Shared(Bytes::copy_from_slice(bytes)),
        };
        Self { body, standing: Standing::Common, more: false, routing_id: 0, extra: None }
    }

    /// A frame over bytes that are not copied. The owner is dropped with the last frame over it, on any thread, perhaps
    /// under a socket's lock.
    pub fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> Self {
        Self { standing: Standing::Lent, ..Self::shared(Bytes::from_owner(owner)) }
    }

    pub(crate) fn shared(bytes: Bytes) -> Self {
        let standing = Standing::Common;
        Self { body: Body::Shared(bytes), standing, more: false, routing_id: 0, extra: None }
    }

    /// A frame over a part of a buffer of bytes that were received; no other frame gets that part.
    pub(crate) fn received(bytes: Bytes) -> Self {
        Self { standing: Standing::Own, ..Self::shared(bytes) }
    }

    /// The same with other bytes.
    #[must_use]
    pub fn with(&self, bytes: &[u8]) -> Self {
        let Self { body, standing, .. } = Self::copy_of(bytes);
        Self { body, standing, ..self.clone() }
    }

    /// Whether nobody else can read its bytes: not a program that has sent them from within the process, and no other
    /// frame.
    pub fn is_only_one(&self) -> bool {
        match (&self.body, self.standing) {
            (Body::Inline(..), _) | (_, Standing::Own) => true,
            (_, Standing::Lent) => false,
            (Body::Shared(bytes), Standing::Common) => bytes.is_unique(),
        }
    }

    /// Whether its bytes are inside it.
    pub fn is_inline(&self) -> bool {
        matches!(self.body, Body::Inline(..))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Body::Shared(bytes) => bytes,
        }
    }

    /// Whether another part of the same message follows.
    pub fn more(&self) -> bool {
        self.more
    }

    pub(crate) fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// The peer's number on a SERVER or PEER socket; 0 is none.
    pub fn routing_id(&self) -> u32 {
        self.routing_id
    }

    /// Sets the peer that the frame is for.
    pub fn set_routing_id(&mut self, routing_id: u32) {
        self.routing_id = routing_id;
    }

    /// The group on a RADIO or DISH socket.
    pub fn group(&self) -> &str {
        self.extra.as_ref().map_or("", |extra| &extra.group)
    }

    /// Sets the group that the frame is for.
    ///
    /// # Errors
    ///
    /// EINVAL for a name of more than 255 bytes.
    pub fn set_group(&mut self, group: &str) -> Result<()> {
        if group.len() > 255 {
            return Err(Error::invalid("a group's name has at most 255 bytes"));
        }
        self.extra.get_or_insert_default().group = group.to_owned();
        Ok(())
    }

    pub(crate) fn set_properties(&mut self, properties: &Arc<Properties>) {
        self.extra.get_or_insert_default().properties = Some(Arc::clone(properties));
    }

    /// A property of the frame's sender: `Socket-Type`, `Identity`, `Peer-Address`, `User-Id`, or any other from its
    /// metadata.
    pub fn property(&self, name: &str) -> Option<&str> {
        let properties = self.extra.as_ref()?.properties.as_ref()?;
        properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn out(&self) -> Out<'_> {
        let shared = match &self.body {
            Body::Shared(bytes) => Some(bytes),
            Body::Inline(..) => None,
        };
        let is_lent = self.standing == Standing::Lent;
        Out { bytes: self.bytes(), shared, is_lent, routing_id: self.routing_id, group: self.group() }
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.bytes().len())
            .field("more", &self.more)
            .finish_non_exhaustive()
    }
}

/// A part on its way out: bytes, and their owner if they may be shared instead of copied.
#[derive(Clone, Copy)]
pub(crate) struct Out<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) shared: Option<&'a Bytes>,
    /// The owner waits for the moment when the bytes are sent.
    pub(crate) is_lent: bool,
    pub(crate) routing_id: u32,
    pub(crate) group: &'a str,
}

impl<'a> Out<'a> {
    pub(crate) fn copied(bytes: &'a [u8]) -> Self {
        Self { bytes, shared: None, is_lent: false, routing_id: 0, group: "" }
    }

    pub(crate) fn to_frame(self) -> Frame {
        let mut frame = match self.shared {
            Some(bytes) if self.is_lent || bytes.len() > INLINE => Frame::shared(bytes.clone()),
            _ => Frame::copy_of(self.bytes),
        };
        if self.is_lent {
            frame.standing = Standing::Lent;
        }
        frame.routing_id = self.routing_id;
        if !self.group.is_empty() {
            frame.extra.get_or_insert_default().group = self.group.to_owned();
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_bodies_are_inside_and_large_ones_are_shared() {
        for length in [0, 1, INLINE, INLINE + 1, 5_000] {
            let bytes = vec![7; length];
            let frame = Frame::copy_of(&bytes);
            let clone = frame.clone();
            assert_eq!(frame.bytes(), bytes);
            let same = frame.bytes().as_ptr() == clone.bytes().as_ptr();
            assert_eq!(same, length > INLINE);
        }
    }

    #[test]
    fn an_owner_is_not_copied_and_is_let_go() {
        struct Owner(Vec<u8>, #[expect(dead_code, reason = "it is counted")] Arc<()>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let (alive, bytes) = (Arc::new(()), vec![1; 3]);
        let at = bytes.as_ptr();
        let frame = Frame::from_owner(Owner(bytes, Arc::clone(&alive)));
        assert_eq!(frame.bytes().as_ptr(), at);
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(frame);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn a_group_has_a_limit() {
        let mut frame = Frame::copy_of(b"x");
        assert!(frame.set_group(&"g".repeat(256)).is_err());
        frame.set_group("weather").expect("short enough");
        assert_eq!(frame.out().to_frame().group(), "weather");
    }
}
