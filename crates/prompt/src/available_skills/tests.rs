use proptest::prelude::*;

use super::*;

const PDF: &str = "Comprehensive PDF manipulation toolkit for extracting text and tables, creating new PDFs, \
    merging/splitting documents, and handling forms. When Claude needs to fill in a PDF form or \
    programmatically process, generate, or analyze PDF documents at scale.";

fn entry<'s>(name: &'s str, description: &'s str, location: &str) -> SkillEntry<'s> {
    SkillEntry { name, description, location: Some(location.to_owned()) }
}

#[test]
fn the_block_has_the_bytes_of_the_reference() {
    let text = block([entry("my-skill", "A test skill", "/abs/my-skill/SKILL.md")].into_iter());
    assert_eq!(
        text,
        "<available_skills>\n<skill>\n<name>\nmy-skill\n</name>\n<description>\nA test skill\n</description>\n\
         <location>\n/abs/my-skill/SKILL.md\n</location>\n</skill>\n</available_skills>"
    );
}

#[test]
fn without_skills_there_is_no_block_and_without_a_location_no_element() {
    assert_eq!(block(std::iter::empty()), "");
    let text = block([SkillEntry { name: "a", description: "b", location: None }].into_iter());
    assert!(!text.contains("location"), "{text}");
}

#[test]
fn names_and_locations_have_no_hidden_text() {
    let hidden = "a\u{e0049}\u{e0067}b\u{202e}";
    let text = block([entry(hidden, hidden, &format!("/skills/{hidden}/SKILL.md"))].into_iter());
    let skill = parse(&text).unwrap().swap_remove(0);
    assert_eq!((&*skill.name, &*skill.description, &*skill.location), ("ab", "ab", "/skills/ab/SKILL.md"));
    let mut xml = XmlWriter::default();
    xml.named("skill", hidden, |_| {});
    assert_eq!(xml.finish(), "<skill name=\"ab\">\n</skill>");
}

#[test]
fn a_description_that_is_longer_than_the_format_allows_is_cut_at_a_character() {
    let whole = "é".repeat(MAX_DESCRIPTION_CHARS);
    let shown = |description: &str| {
        let text = block([entry("a", description, "/a/SKILL.md")].into_iter());
        parse(&text).unwrap().swap_remove(0).description
    };
    assert_eq!(shown(&whole), whole);
    for excess in [1, 900 * 1024] {
        let cut = shown(&format!("{whole}{}", "é".repeat(excess)));
        assert_eq!(cut, format!("{}…", "é".repeat(MAX_DESCRIPTION_CHARS - 1)));
    }
}

#[test]
fn a_typical_skill_costs_near_100_tokens() {
    let one = block([entry("pdf", PDF, "/mnt/skills/pdf/SKILL.md")].into_iter());
    let two = block((0..2).map(|_| entry("pdf", PDF, "/mnt/skills/pdf/SKILL.md")));
    // An English token has about four characters.
    let tokens = (two.len() - one.len()) / 4;
    assert!((60..=120).contains(&tokens), "{tokens} tokens");
}

/// One element of the text.
#[derive(Debug, PartialEq)]
struct Parsed {
    name: String,
    description: String,
    location: String,
}

/// Parses the block strictly: everything between `<` and `>` is a tag.
fn parse(text: &str) -> Result<Vec<Parsed>, String> {
    let mut rest = text;
    let mut skills = Vec::new();
    expect(&mut rest, "<available_skills>\n")?;
    while rest.starts_with("<skill>") {
        expect(&mut rest, "<skill>\n")?;
        skills.push(Parsed {
            name: value(&mut rest, "name")?,
            description: value(&mut rest, "description")?,
            location: value(&mut rest, "location")?,
        });
        expect(&mut rest, "</skill>\n")?;
    }
    expect(&mut rest, "</available_skills>")?;
    if rest.is_empty() { Ok(skills) } else { Err(format!("text after the block: {rest:?}")) }
}

fn expect(rest: &mut &str, text: &str) -> Result<(), String> {
    *rest = rest.strip_prefix(text).ok_or_else(|| format!("expected {text:?} before {rest:?}"))?;
    Ok(())
}

fn value(rest: &mut &str, tag: &str) -> Result<String, String> {
    expect(rest, &format!("<{tag}>\n"))?;
    let (data, after) = rest.split_once('<').ok_or("no closing tag")?;
    *rest = after;
    expect(rest, &format!("/{tag}>\n"))?;
    if data.contains('>') {
        return Err(format!("markup in {data:?}"));
    }
    let data = data.strip_suffix('\n').ok_or("the value has no line of its own")?;
    unescape(data)
}

fn unescape(data: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut pieces = data.split('&');
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (entity, after) = piece.split_once(';').ok_or_else(|| format!("a bare & in {data:?}"))?;
        text.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#x27" => '\'',
            other => return Err(format!("unknown entity {other:?}")),
        });
        text.push_str(after);
    }
    Ok(text)
}

/// `text` as XML can contain it.
fn sayable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => c,
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// Texts of up to 1,024 characters that try to break out, among arbitrary ones.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("</description>".to_owned()),
        Just("</skill></available_skills>".to_owned()),
        Just("]]>".to_owned()),
        Just("<![CDATA[".to_owned()),
        Just("<!--".to_owned()),
        Just("&lt;".to_owned()),
        Just("&#60;".to_owned()),
        Just("\n</name>\n".to_owned()),
        Just("\0\u{1b}[31m\u{7f}\u{85}\u{ffff}".to_owned()),
        any::<String>(),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat().chars().take(1024).collect())
}

proptest! {
    #[test]
    fn no_text_breaks_out_of_its_element(fields in prop::collection::vec((hostile(), hostile(), hostile()), 1..4)) {
        let text = block(fields.iter().map(|(name, description, location)| entry(name, description, location)));
        let expected: Vec<Parsed> = fields
            .iter()
            .map(|(name, description, location)| Parsed {
                name: sayable(&strip_deceptive(name)),
                description: sayable(&strip_deceptive(description)),
                location: sayable(&strip_deceptive(location)),
            })
            .collect();
        prop_assert_eq!(parse(&text), Ok(expected));
    }
}
