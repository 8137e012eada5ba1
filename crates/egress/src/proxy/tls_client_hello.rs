//! Parser of the first message of a TLS handshake, the ClientHello (RFC 8446, section 4.1.2), up to its server name.
//!
//! The message may be split over any number of records and reads. Input that a server might understand differently
//! counts as malformed: two server names, an empty record, bytes after the message in its record. Unknown extensions
//! and ciphers (GREASE among them) are ignored. With an encrypted ClientHello the server name is the outer one.
//!
//! State: the message while it is incomplete, up to a maximum length.

/// The only defined type of an entry in the server name extension (RFC 6066, section 3).
const HOST_NAME: u8 = 0;
const SERVER_NAME: u16 = 0;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The maximum length of a record without its header.
const MAX_RECORD_BYTES: usize = 1 << 14;
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// The result of parsing a ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHello {
    /// More bytes are needed.
    Incomplete,
    /// It is complete and names this server, in unchecked bytes.
    Sni(Box<[u8]>),
    /// It is complete and has no server name.
    NoSni,
}

/// The error of parsing bytes that are not a ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The message is malformed.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is longer than the reader's limit.
    #[error("it is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
}

const fn malformed(what: &'static str) -> HelloError {
    HelloError::Malformed(what)
}

/// Incremental parser of a ClientHello.
#[derive(Debug)]
pub struct HelloReader {
    limit: usize,
    header: Vec<u8>,
    remaining_in_record: usize,
    message: Vec<u8>,
}

impl HelloReader {
    /// A parser of messages of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, header: Vec::new(), remaining_in_record: 0, message: Vec::new() }
    }

    /// Parses the next `bytes`. Bytes after the record that completes the message are ignored. After a complete message or an error
    /// this must not be called again.
    ///
    /// # Errors
    ///
    /// [`HelloError`] as soon as the bytes are not a ClientHello, or longer than the limit.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<ClientHello, HelloError> {
        while let [first, rest @ ..] = bytes {
            if self.remaining_in_record == 0 {
                self.header.push(*first);
                bytes = rest;
                self.remaining_in_record = record_length(&self.header)?;
                if self.remaining_in_record > 0 {
                    self.header.clear();
                }
                continue;
            }
            let (content, rest) = bytes.split_at(self.remaining_in_record.min(bytes.len()));
            self.message.extend_from_slice(content);
            self.remaining_in_record -= content.len();
            bytes = rest;
            let Some(length) = self.message_length()? else { continue };
            if self.message.len() > length || self.message.len() == length && self.remaining_in_record > 0 {
                return Err(malformed("something else follows in its record"));
            }
            if self.message.len() == length {
                return parse_server_name(&self.message[MESSAGE_HEADER..]);
            }
        }
        Ok(ClientHello::Incomplete)
    }

    /// The length of the message with its header, once it is known.
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

/// The length of a record's content; 0 while its header is incomplete.
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
        length if length > MAX_RECORD_BYTES => Err(malformed("it has a record that is too long")),
        length => Ok(length),
    }
}

/// The remaining bytes of a message.
struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(malformed("a length does not fit"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a length of one byte, and the bytes of that length.
    fn take_u8_prefixed(&mut self) -> Result<&'a [u8], HelloError> {
        let count = self.take(1)?;
        self.take(usize::from(count[0]))
    }

    fn take_u16(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a length of two bytes, and the bytes of that length.
    fn take_u16_prefixed(&mut self) -> Result<&'a [u8], HelloError> {
        let count = self.take_u16()?;
        self.take(usize::from(count))
    }
}

fn parse_server_name(message: &[u8]) -> Result<ClientHello, HelloError> {
    let mut rest = ByteCursor(message);
    if rest.take(2)?[0] != 3 {
        return Err(malformed("its version is not of TLS"));
    }
    let _random = rest.take(32)?;
    if rest.take_u8_prefixed()?.len() > 32 {
        return Err(malformed("its session id is too long"));
    }
    let ciphers = rest.take_u16_prefixed()?;
    if ciphers.is_empty() || ciphers.len() % 2 != 0 {
        return Err(malformed("its list of ciphers is malformed"));
    }
    if rest.take_u8_prefixed()?.is_empty() {
        return Err(malformed("its list of compressions is empty"));
    }
    if rest.0.is_empty() {
        // A ClientHello without extensions, as before TLS 1.2.
        return Ok(ClientHello::NoSni);
    }
    let mut extensions = ByteCursor(rest.take_u16_prefixed()?);
    if !rest.0.is_empty() {
        return Err(malformed("something follows its extensions"));
    }
    let mut hello = ClientHello::NoSni;
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.take_u16()?, extensions.take_u16_prefixed()?);
        if kind != SERVER_NAME {
            continue;
        }
        if hello != ClientHello::NoSni {
            return Err(malformed("it names the server twice"));
        }
        hello = ClientHello::Sni(single_host_name(content)?.into());
    }
    Ok(hello)
}

/// The single entry of a list of names.
fn single_host_name(extension: &[u8]) -> Result<&[u8], HelloError> {
    let mut rest = ByteCursor(extension);
    let mut list = ByteCursor(rest.take_u16_prefixed()?);
    if !rest.0.is_empty() {
        return Err(malformed("something follows its list of server names"));
    }
    if list.take(1)?[0] != HOST_NAME {
        return Err(malformed("its server name is of an unknown type"));
    }
    let name = list.take_u16_prefixed()?;
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
