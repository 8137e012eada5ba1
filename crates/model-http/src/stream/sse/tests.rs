use super::*;
use proptest::prelude::*;

type Events = Vec<(String, String)>;

/// The events of `pieces`, one after another.
fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Events, SseError> {
    parse_limited(1 << 20, pieces)
}

fn parse_limited<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Events, SseError> {
    let mut parser = SseParser::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(piece, |event| {
            events.push((event.name.to_owned(), event.data.to_owned()));
            Ok::<_, SseError>(())
        })?;
    }
    Ok(events)
}

/// The stream gives these events, whole and byte by byte.
fn check(stream: &[u8], expected: &[(&str, &str)]) {
    let expected: Events =
        expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
    assert_eq!(parse([stream]).unwrap(), expected, "in one piece");
    assert_eq!(parse(stream.chunks(1)).unwrap(), expected, "byte by byte");
}

#[test]
fn lines_end_in_three_ways() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("event: a{end}data: 1{end}{end}data: 2{end}{end}");
        check(stream.as_bytes(), &[("a", "1"), ("", "2")]);
    }
    check(b"data: 1\r\ndata: 2\ndata: 3\r\r\ndata: 4\n\r", &[("", "1\n2\n3"), ("", "4")]);
}

#[test]
fn several_data_lines_are_joined_by_newlines() {
    check(b"data: {\ndata\ndata:  x\ndata:}\n\n", &[("", "{\n\n x\n}")]);
}

#[test]
fn comments_unknown_fields_ids_and_a_byte_order_mark_are_passed_over() {
    check(b"\xEF\xBB\xBF: hi\nid: 7\nretry: 3\nnonsense\nevent: a\ndata: 1\n:\n\n", &[("a", "1")]);
    check(b"\xEF\xBB\xBFdata: 1\n\n", &[("", "1")]);
}

#[test]
fn events_without_data_are_none_and_leave_no_name_behind() {
    check(b"event: a\n\n\n\ndata: 1\n\n", &[("", "1")]);
    check(b"data\n\n", &[("", "")]);
}

#[test]
fn characters_may_be_split_between_pieces() {
    check("data: \u{1F980} gr\u{fc}n\n\n".as_bytes(), &[("", "\u{1F980} gr\u{fc}n")]);
}

#[test]
fn an_incomplete_event_at_the_end_is_dropped() {
    check(b"data: 1\n\ndata: 2\n", &[("", "1")]);
    check(b"data: 1\n\ndata: 2", &[("", "1")]);
}

#[test]
fn an_endless_line_or_event_is_refused_at_the_limit() {
    let refused = Err(SseError::TooLarge { limit: 64 });
    assert_eq!(parse_limited(64, [&b"x".repeat(65)[..]]), refused);
    assert_eq!(parse_limited(64, b"x".repeat(65).chunks(3)), refused);
    assert_eq!(parse_limited(64, b"data: 12345678\n".repeat(10).chunks(7)), refused);
    assert_eq!(parse_limited(64, b"data\n".repeat(100).chunks(7)), refused);
}

#[test]
fn bytes_that_are_no_text_are_an_error() {
    assert_eq!(parse([&b"data: \xFF\n\n"[..]]), Err(SseError::NotUtf8));
}

/// What the standard says, written without regard to speed: the whole text, split into lines.
fn reference(stream: &str) -> Events {
    let stream = stream.strip_prefix('\u{feff}').unwrap_or(stream);
    let text = stream.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), Vec::new());
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What follows the last line end is not a line yet.
    lines.pop();
    for line in lines {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut name), std::mem::take(&mut data));
            if !data.is_empty() {
                events.push((name, data.join("\n")));
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "data" => data.push(value),
            "event" => name = value,
            _ => {}
        }
    }
    events
}

proptest! {
    #[test]
    fn any_split_gives_the_events_of_the_standard(
        stream in "(data: |data|event: |:|[\r\n]|[\r\n]|\r\n|x|é|\u{feff}| |some longer words of text){0,60}",
        cuts in proptest::collection::vec(0usize..600, 0..8),
    ) {
        let bytes = stream.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(parse(pieces).unwrap(), reference(&stream));
    }

    #[test]
    fn any_bytes_end_in_events_or_an_error(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
    ) {
        let whole: Vec<u8> = pieces.concat();
        let split = parse_limited(100, pieces.iter().map(Vec::as_slice));
        prop_assert_eq!(split, parse_limited(100, [&whole[..]]));
    }

    #[test]
    fn the_end_of_a_line_is_found_where_a_plain_search_finds_it(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(0x0B), Just(0x8A)], 0..64)) {
        prop_assert_eq!(line_end(&bytes), bytes.iter().position(|b| matches!(b, b'\n' | b'\r')));
    }
}
