use proptest::prelude::*;

use super::*;
use crate::proxy::buffered::ReadBuffer;

/// The content of `bytes`, its encoded length, and whether it has ended; decoded in chunks of `piece` bytes.
fn decode(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), &'static str> {
    let (mut chunks, mut content, mut at) = (ChunkedDecoder::default(), Vec::new(), 0);
    while at < bytes.len() {
        let data = &bytes[at..bytes.len().min(at + piece)];
        match chunks.decode(data)? {
            ChunkEvent::Framing(count) => at += count,
            ChunkEvent::Content(count) => {
                assert!(count > 0, "a step goes on");
                content.extend_from_slice(&data[..count]);
                at += count;
            }
            ChunkEvent::End(count) => return Ok((content, at + count, true)),
        }
    }
    Ok((content, at, false))
}

fn check(text: &str, expected: Result<(&str, usize), &'static str>) {
    for piece in [1, 2, 3, 1000] {
        let decoded = decode(text.as_bytes(), piece);
        let expected = expected.map(|(content, used)| (content.as_bytes().to_vec(), used, true));
        assert_eq!(decoded, expected, "{text:?} in pieces of {piece}");
    }
}

#[test]
fn chunks_are_decoded() {
    check("0\r\n\r\n", Ok(("", 5)));
    check("3\r\nabc\r\n0\r\n\r\nGET", Ok(("abc", 13)));
    check("3;a=\"b\";c\r\nabc\r\n00A\r\n0123456789\r\n000\r\n\r\n", Ok(("abc0123456789", 40)));
    check("1\r\na\r\n0\r\nA: b\r\nC:\r\n\r\n", Ok(("a", 21)));
}

#[test]
fn other_framing_is_malformed() {
    let malformed = Err("its chunks are malformed");
    for text in [
        "\r\n",
        "x\r\n",
        "+3\r\nabc\r\n",
        "-1\r\n",
        "0x3\r\nabc\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "3\nabc\r\n",
        "3\rabc",
        "3\r\r\nabc",
        "3\r\nabcd\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "0\r\n\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA\r\r\n\r\n",
        "3;a\nabc",
        "0\n\n",
        "3;\0\r\nabc\r\n",
        "0\r\nA\0: b\r\n\r\n",
    ] {
        check(text, malformed);
    }
    check("1000000000000000\r\n", Err("a chunk is too large"));
    check(&format!("1;{}\r\n", "a".repeat(257)), malformed);
    check(&format!("0\r\nA: {}\r\n\r\n", "a".repeat(8190)), malformed);
    check(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(2049)), malformed);
}

#[tokio::test]
async fn a_chunked_body_arrives_as_chunks_or_plain() {
    let bytes = b"3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\nrest";
    for (receiver, expected) in
        [(Version::Http11, &b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"[..]), (Version::Http10, b"abcde")]
    {
        let (mut from, mut to) = (ReadBuffer::new(&bytes[..], 1024), Vec::new());
        copy_body(&mut from, &mut to, BodyLength::Chunked, receiver).await.unwrap();
        assert_eq!(to, expected);
        assert_eq!(from.data(), b"rest");
    }
}

#[tokio::test]
async fn a_body_with_a_length_is_copied_exactly_and_must_be_complete() {
    let (mut from, mut to) = (ReadBuffer::new(&b"abcdef"[..], 1024), Vec::new());
    copy_body(&mut from, &mut to, BodyLength::Exact(4), Version::Http11).await.unwrap();
    assert_eq!((&to[..], from.data()), (&b"abcd"[..], &b"ef"[..]));
    let missing = copy_body(&mut from, &mut to, BodyLength::Exact(3), Version::Http11).await;
    assert!(matches!(missing, Err(BodyError::Read(_))));
    let (mut from, mut to) = (ReadBuffer::new(&b"abcdef"[..], 1024), Vec::new());
    copy_body(&mut from, &mut to, BodyLength::UntilClose, Version::Http11).await.unwrap();
    assert_eq!(to, b"abcdef");
    copy_body(&mut from, &mut to, BodyLength::None, Version::Http11).await.unwrap();
    assert_eq!(to, b"abcdef");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunked_bodies_round_trip(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..10),
        piece in 1_usize..60,
        behind in any::<Vec<u8>>(),
    ) {
        let chunk = |piece: &Vec<u8>| [format!("{:X}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        let mut bytes: Vec<u8> = pieces.iter().flat_map(chunk).collect();
        bytes.extend(b"0\r\n\r\n");
        let length = bytes.len();
        bytes.extend(behind);
        prop_assert_eq!(decode(&bytes, piece), Ok((pieces.concat(), length, true)));
    }

    #[test]
    fn the_chunking_of_reads_changes_nothing(
        text in "[0-9a-f;\r\n]{0,12}(\r\n)?[a-z0-9]{0,6}(\r\n){0,2}[0-9]{0,2}(\r\n){0,3}",
        piece in 1_usize..8,
    ) {
        prop_assert_eq!(decode(text.as_bytes(), piece), decode(text.as_bytes(), 1000));
    }
}
