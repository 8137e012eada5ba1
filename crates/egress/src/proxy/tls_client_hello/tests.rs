use proptest::prelude::*;

use super::*;

fn long(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &long(content)].concat()
}

fn server_name_extension(name: &[u8]) -> Vec<u8> {
    extension(SERVER_NAME, &long(&[&[HOST_NAME][..], &long(name)].concat()))
}

/// A message without its header.
fn body(extensions: &[u8]) -> Vec<u8> {
    let ciphers = long(&[0x1a, 0x1a, 0x13, 0x01]);
    [&[3, 3][..], &[7; 32], &[32], &[9; 32], &ciphers, &[1, 0], &long(extensions)].concat()
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO], &length[1..], body].concat()
}

/// The message in records of these sizes, the last of which is repeated.
fn records(message: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut sizes = sizes.iter().copied();
    let (mut left, mut size, mut bytes) = (message, message.len(), Vec::new());
    while !left.is_empty() {
        size = sizes.next().unwrap_or(size).min(left.len());
        let (content, remainder) = left.split_at(size);
        bytes.extend([HANDSHAKE_RECORD, 3, 1]);
        bytes.extend(long(content));
        left = remainder;
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<ClientHello, HelloError> {
    HelloReader::new(1 << 15).read(bytes)
}

fn names(name: &str) -> Result<ClientHello, HelloError> {
    Ok(ClientHello::Sni(name.as_bytes().into()))
}

fn check(extensions: &[u8], expected: Result<ClientHello, HelloError>) {
    let message = message(&body(extensions));
    assert_eq!(read(&records(&message, &[message.len()])), expected);
}

#[test]
fn the_server_name_is_found_among_other_extensions() {
    let grease = extension(0x2a2a, &[]);
    check(&server_name_extension(b"example.com"), names("example.com"));
    check(
        &[&grease[..], &server_name_extension(b"example.com"), &extension(43, &[2, 3, 4])].concat(),
        names("example.com"),
    );
    check(&grease, Ok(ClientHello::NoSni));
    check(&[], Ok(ClientHello::NoSni));
}

#[test]
fn the_outer_name_of_an_encrypted_hello_counts() {
    let encrypted = extension(0xfe0d, &[0; 200]);
    check(&[&encrypted[..], &server_name_extension(b"outer.example")].concat(), names("outer.example"));
}

#[test]
fn a_hello_without_extensions_has_no_server_name() {
    let old = [&[3, 1][..], &[7; 32], &[0], &long(&[0, 5]), &[1, 0]].concat();
    assert_eq!(read(&records(&message(&old), &[])), Ok(ClientHello::NoSni));
}

#[test]
fn ambiguous_hellos_are_malformed() {
    let malformed = |what| Err(HelloError::Malformed(what));
    let name = server_name_extension(b"a.example");
    check(&[&name[..], &name].concat(), malformed("it names the server twice"));
    let entry = [&[HOST_NAME][..], &long(b"a.example")].concat();
    check(&extension(0, &long(&[&entry[..], &entry].concat())), malformed("it names several servers"));
    check(
        &extension(0, &[&long(&entry)[..], b"x"].concat()),
        malformed("something follows its list of server names"),
    );
    check(
        &extension(0, &long(&[&[1][..], &long(b"a")].concat())),
        malformed("its server name is of an unknown type"),
    );
    check(&server_name_extension(b""), malformed("its server name is empty"));
    check(&extension(0, &[]), malformed("a length does not fit"));
    check(&extension(0, &long(&[])), malformed("a length does not fit"));
    check(&name[..name.len() - 1], malformed("a length does not fit"));

    let complete = message(&body(&name));
    let followed = [&complete[..], &[0]].concat();
    assert_eq!(
        read(&records(&followed, &[followed.len()])),
        malformed("something else follows in its record")
    );
    let behind = message(&[&body(&name)[..], &[0]].concat());
    assert_eq!(read(&records(&behind, &[])), malformed("something follows its extensions"));
    let empty = [&[HANDSHAKE_RECORD, 3, 1, 0, 0][..], &records(&complete, &[])].concat();
    assert_eq!(read(&empty), malformed("it has an empty record"));
    let change =
        [&records(&complete[..20], &[])[..], &[20, 3, 3, 0, 1, 1], &records(&complete[20..], &[])].concat();
    assert_eq!(read(&change), malformed("a record of another type lies within it"));
    assert_eq!(read(&[22, 3, 1, 0x40, 1]), malformed("it has a record that is too long"));
    assert_eq!(read(&[22, 2]), malformed("its version is not of TLS"));
    assert_eq!(read(&[22, 3, 1, 0, 1, 2]), malformed("its first message is not ClientHello"));
    assert_eq!(read(&[128, 46, 1, 3, 1]), malformed("a record of another type lies within it"));
}

#[test]
fn a_hello_that_is_too_long_is_refused_by_its_header() {
    assert_eq!(read(&[22, 3, 1, 0, 4, 1, 0, 0x7f, 0xfd]), Err(HelloError::TooLong { limit: 1 << 15 }));
    assert_eq!(read(&[22, 3, 1, 0, 4, 1, 0, 0x7f, 0xfc]), Ok(ClientHello::Incomplete));
    assert_eq!(read(&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]), Err(HelloError::TooLong { limit: 1 << 15 }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splitting_into_records_and_reads_changes_nothing(
        name in "[a-z.]{1,60}",
        padding in 0_usize..2000,
        sizes in proptest::collection::vec(1_usize..300, 1..8),
        reads in proptest::collection::vec(1_usize..300, 1..8),
    ) {
        let extensions = [extension(21, &vec![0; padding]), server_name_extension(name.as_bytes())].concat();
        let bytes = records(&message(&body(&extensions)), &sizes);
        let mut reader = HelloReader::new(1 << 15);
        let (mut left, mut at) = (&bytes[..], 0);
        while !left.is_empty() {
            let (piece, remainder) = left.split_at(reads[at % reads.len()].min(left.len()));
            let expected = if remainder.is_empty() { names(&name) } else { Ok(ClientHello::Incomplete) };
            prop_assert_eq!(reader.read(piece), expected);
            (left, at) = (remainder, at + 1);
        }
    }

    #[test]
    fn bytes_after_the_last_record_are_ignored(
        name in "[a-z.]{1,60}",
        behind in any::<Vec<u8>>(),
    ) {
        let bytes = records(&message(&body(&server_name_extension(name.as_bytes()))), &[]);
        prop_assert_eq!(read(&[&bytes[..], &behind].concat()), names(&name));
    }

    #[test]
    fn a_real_client_is_understood(name in "[a-z]{1,20}(\\.[a-z]{1,20}){1,3}") {
        let mut config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.max_fragment_size = Some(64);
        let mut client = rustls::ClientConnection::new(config.into(), name.clone().try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        prop_assert_eq!(read(&bytes), names(&name));
    }

    #[test]
    fn no_input_makes_the_parser_panic(bytes in any::<Vec<u8>>(), tail in any::<Vec<u8>>()) {
        let _ = read(&bytes);
        let _ = read(&[&[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..], &[7; 32], &tail].concat());
    }
}
