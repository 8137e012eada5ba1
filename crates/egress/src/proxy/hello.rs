//! The first message of a TLS handshake (RFC 8446, section 4.1.2), as far as its server name.
//!
//! The message may be cut over any number of records and reads. It is read strictly: what a server might understand
//! otherwise than we do is malformed, such as two server names, an empty record, or bytes behind the message in its
//! record. Unknown extensions and ciphers (GREASE among them) are passed over. With an encrypted ClientHello the
//! server name is the outer one. It owns the message while it is incomplete, within a bound.

/// What an entry of the server name extension is, of those that are defined (RFC 6066, section 3).
const HOST_NAME: u8 = 0;
const SERVER_NAME: u16 = 0;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The longest record, in bytes, without its header.
const LONGEST_RECORD: usize = 1 << 14;
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// What is known of a ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHello {
    /// Too little of it has come.
    Incomplete,
    /// It is complete and names this server, in bytes that were not looked at.
    Names(Box<[u8]>),
    /// It is complete and names no server.
    NamesNone,
}

/// Why bytes are no ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// It does not keep to the format.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is longer than the reader's bound.
    #[error("it is longer than {limit} bytes")]
    TooLong {
        /// The bound, in bytes.
        limit: usize,
    },
}

const fn malformed(what: &'static str) -> HelloError {
    HelloError::Malformed(what)
}

/// Reads a ClientHello piece by piece.
#[derive(Debug)]
pub struct HelloReader {
    limit: usize,
    header: Vec<u8>,
    left_in_record: usize,
    message: Vec<u8>,
}

impl HelloReader {
    /// A reader of messages of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, header: Vec::new(), left_in_record: 0, message: Vec::new() }
    }

    /// Reads on with the next `bytes`. What lies behind the record that completes the message is not looked at. Once
    /// it is complete, or an error, nothing more may be given.
    ///
    /// # Errors
    ///
    /// [`HelloError`] as soon as it is no ClientHello, or longer than the bound.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<ClientHello, HelloError> {
        while let [first, rest @ ..] = bytes {
            if self.left_in_record == 0 {
                self.header.push(*first);
                bytes = rest;
                self.left_in_record = record_length(&self.header)?;
                if self.left_in_record > 0 {
                    self.header.clear();
                }
                continue;
            }
            let (content, rest) = bytes.split_at(self.left_in_record.min(bytes.len()));
            self.message.extend_from_slice(content);
            self.left_in_record -= content.len();
            bytes = rest;
            let Some(length) = self.message_length()? else { continue };
            if self.message.len() > length || self.message.len() == length && self.left_in_record > 0 {
                return Err(malformed("something else follows in its record"));
            }
            if self.message.len() == length {
                return server_name(&self.message[MESSAGE_HEADER..]);
            }
        }
        Ok(ClientHello::Incomplete)
    }

    /// The length of the whole message with its header, once that is known.
    fn message_length(&self) -> Result<Option<usize>, HelloError> {
        if self.message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(malformed("its first message is not ClientHello"));
        }
        let Some([_, high, middle, low]) = self.message.first_chunk::<MESSAGE_HEADER>() else {
            return Ok(None);
        };
        let length =
            MESSAGE_HEADER + (usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low));
        if length > self.limit { Err(HelloError::TooLong { limit: self.limit }) } else { Ok(Some(length)) }
    }
}

/// The length of a record's content, 0 while its header is incomplete.
fn record_length(header: &[u8]) -> Result<usize, HelloError> {
    if header.first().is_some_and(|kind| *kind != HANDSHAKE_RECORD) {
        return Err(malformed("a record of another type lies within it"));
    }
    if header.get(1).is_some_and(|version| *version != 3) {
        return Err(malformed("its version is not of TLS"));
    }
    let Some([_, _, _, high, low]) = header.first_chunk::<RECORD_HEADER>() else { return Ok(0) };
    match usize::from(u16::from_be_bytes([*high, *low])) {
        0 => Err(malformed("it has an empty record")),
        length if length > LONGEST_RECORD => Err(malformed("it has a record that is too long")),
        length => Ok(length),
    }
}

/// What is left to read of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(malformed("a length does not fit"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Content behind a length of one byte.
    fn short(&mut self) -> Result<&'a [u8], HelloError> {
        let count = self.take(1)?;
        self.take(usize::from(count[0]))
    }

    fn number(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Content behind a length of two bytes.
    fn long(&mut self) -> Result<&'a [u8], HelloError> {
        let count = self.number()?;
        self.take(usize::from(count))
    }
}

fn server_name(message: &[u8]) -> Result<ClientHello, HelloError> {
    let mut rest = Rest(message);
    if rest.take(2)?[0] != 3 {
        return Err(malformed("its version is not of TLS"));
    }
    let _random = rest.take(32)?;
    if rest.short()?.len() > 32 {
        return Err(malformed("its session id is too long"));
    }
    let ciphers = rest.long()?;
    if ciphers.is_empty() || ciphers.len() % 2 != 0 {
        return Err(malformed("its list of ciphers is malformed"));
    }
    if rest.short()?.is_empty() {
        return Err(malformed("its list of compressions is empty"));
    }
    if rest.0.is_empty() {
        // As before TLS 1.2 without extensions.
        return Ok(ClientHello::NamesNone);
    }
    let mut extensions = Rest(rest.long()?);
    if !rest.0.is_empty() {
        return Err(malformed("something follows its extensions"));
    }
    let mut hello = ClientHello::NamesNone;
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.number()?, extensions.long()?);
        if kind != SERVER_NAME {
            continue;
        }
        if hello != ClientHello::NamesNone {
            return Err(malformed("it names the server twice"));
        }
        hello = ClientHello::Names(only_name(content)?.into());
    }
    Ok(hello)
}

/// The one entry of a list of names.
fn only_name(extension: &[u8]) -> Result<&[u8], HelloError> {
    let mut rest = Rest(extension);
    let mut list = Rest(rest.long()?);
    if !rest.0.is_empty() {
        return Err(malformed("something follows its list of server names"));
    }
    if list.take(1)?[0] != HOST_NAME {
        return Err(malformed("its server name is of an unknown type"));
    }
    let name = list.long()?;
    if name.is_empty() {
        return Err(malformed("its server name is empty"));
    }
    if !list.0.is_empty() {
        return Err(malformed("it names several servers"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
