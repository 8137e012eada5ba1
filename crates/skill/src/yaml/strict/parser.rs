//! Parses a document into a tree.

use std::iter::Peekable;
use std::vec;

use super::scanner::{self, Token, TokenKind};
use crate::yaml::node::{Mark, Node, Syntax, Value};

/// The maximum nesting depth: more than any frontmatter needs, less than the stack allows.
const MAX_DEPTH: usize = 64;

/// Reads a document. An empty document is an empty text.
pub(crate) fn read(text: &str) -> Result<Node, Syntax> {
    parse(scanner::scan(text)?)
}

/// Parses the tokens of a document.
fn parse(tokens: Vec<Token>) -> Result<Node, Syntax> {
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth: 0 };
    let start = parser.mark();
    if parser.at(&TokenKind::StreamEnd) {
        return Ok(empty(start));
    }
    let (root, _) = parser.node(SequencePosition::Refused)?;
    if parser.at(&TokenKind::DocumentEnd) {
        parser.tokens.next();
    }
    if parser.at(&TokenKind::StreamEnd) { Ok(root) } else { Err(parser.unexpected()) }
}

/// Whether a list may begin at the column of the enclosing mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SequencePosition {
    Allowed,
    Refused,
}

struct Parser {
    tokens: Peekable<vec::IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    /// A node, and the column at which it begins.
    fn node(&mut self, entries: SequencePosition) -> Result<(Node, usize), Syntax> {
        let (mark, column) = self.tokens.peek().map_or((START, 0), |token| (token.mark, token.column));
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Syntax { message: format!("nested deeper than {MAX_DEPTH} levels"), mark });
        }
        let value = match self.tokens.peek().map(|token| &token.kind) {
            Some(TokenKind::Entry) if entries == SequencePosition::Allowed => self.indentless_sequence()?,
            Some(TokenKind::SequenceStart) => self.sequence()?,
            Some(TokenKind::MappingStart) => self.mapping()?,
            Some(TokenKind::Scalar { .. }) => match self.tokens.next().map(|token| token.kind) {
                Some(TokenKind::Scalar { text, .. }) => Value::Scalar(text),
                _ => return Err(self.unexpected()),
            },
            _ => return Err(self.unexpected()),
        };
        self.depth -= 1;
        Ok((Node { value, mark }, column))
    }

    fn sequence(&mut self) -> Result<Value, Syntax> {
        self.tokens.next();
        let mut items = Vec::new();
        while self.at(&TokenKind::Entry) {
            let mark = self.mark();
            self.tokens.next();
            if self.at(&TokenKind::Entry) || self.at(&TokenKind::BlockEnd) {
                items.push(empty(mark));
            } else {
                items.push(self.node(SequencePosition::Refused)?.0);
            }
        }
        self.block_end()?;
        Ok(Value::Sequence(items))
    }

    fn indentless_sequence(&mut self) -> Result<Value, Syntax> {
        let mut items = Vec::new();
        while self.at(&TokenKind::Entry) {
            let mark = self.mark();
            self.tokens.next();
            if self.at(&TokenKind::Entry) || self.at_key_value_or_end() {
                items.push(empty(mark));
            } else {
                items.push(self.node(SequencePosition::Refused)?.0);
            }
        }
        Ok(Value::Sequence(items))
    }

    fn mapping(&mut self) -> Result<Value, Syntax> {
        self.tokens.next();
        let mut entries = Vec::new();
        let mut column_of_mappings = None;
        loop {
            let mark = self.mark();
            let key = match self.tokens.peek().map(|token| &token.kind) {
                Some(TokenKind::Key) => {
                    self.tokens.next();
                    self.key()?
                }
                Some(TokenKind::Value) => String::new(),
                _ => break,
            };
            let (value, column) = self.mapping_value()?;
            if matches!(value.value, Value::Mapping(_)) && *column_of_mappings.get_or_insert(column) != column
            {
                let message = "indented otherwise than the mapping of an earlier key".to_owned();
                return Err(Syntax { message, mark: value.mark });
            }
            entries.push((key, mark, value));
        }
        self.block_end()?;
        reject_duplicate_keys(&entries)?;
        Ok(Value::Mapping(entries))
    }

    fn key(&mut self) -> Result<String, Syntax> {
        if self.at_key_value_or_end() {
            return Ok(String::new());
        }
        if let Some(Token { kind: TokenKind::Scalar { text, plain: true }, mark, .. }) = self.tokens.peek()
            && text == "<<"
        {
            return Err(Syntax {
                message: "merge keys are not allowed: quote the key".to_owned(),
                mark: *mark,
            });
        }
        match self.node(SequencePosition::Allowed)?.0 {
            Node { value: Value::Scalar(text), .. } => Ok(text),
            Node { mark, .. } => Err(Syntax { message: "a key must be text".to_owned(), mark }),
        }
    }

    fn mapping_value(&mut self) -> Result<(Node, usize), Syntax> {
        let mark = self.mark();
        if !self.at(&TokenKind::Value) {
            return Ok((empty(mark), 0));
        }
        self.tokens.next();
        if self.at_key_value_or_end() { Ok((empty(mark), 0)) } else { self.node(SequencePosition::Allowed) }
    }

    fn block_end(&mut self) -> Result<(), Syntax> {
        if self.at(&TokenKind::BlockEnd) {
            self.tokens.next();
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn at_key_value_or_end(&mut self) -> bool {
        self.at(&TokenKind::Key) || self.at(&TokenKind::Value) || self.at(&TokenKind::BlockEnd)
    }

    fn at(&mut self, kind: &TokenKind) -> bool {
        self.tokens.peek().is_some_and(|token| token.kind == *kind)
    }

    fn mark(&mut self) -> Mark {
        self.tokens.peek().map_or(START, |token| token.mark)
    }

    fn unexpected(&mut self) -> Syntax {
        let message = match self.tokens.peek().map(|token| &token.kind) {
            Some(TokenKind::Scalar { .. }) => "expected a key, found a text: check the indentation",
            Some(TokenKind::Key | TokenKind::MappingStart) => {
                "a key is not allowed here: check the indentation"
            }
            Some(TokenKind::Value) => "a `:` is not allowed here",
            Some(TokenKind::Entry | TokenKind::SequenceStart) => {
                "a list is not allowed here: check the indentation"
            }
            Some(TokenKind::BlockEnd) => "the block ends where a value was expected",
            Some(TokenKind::DocumentEnd) => "the document ends where a value was expected",
            Some(TokenKind::StreamEnd) | None => "the frontmatter ends where a value was expected",
        };
        Syntax { message: message.to_owned(), mark: self.mark() }
    }
}

const START: Mark = Mark { line: 1, column: 1 };

/// Refuses a key that occurs twice.
fn reject_duplicate_keys(entries: &[(String, Mark, Node)]) -> Result<(), Syntax> {
    let mut keys: Vec<_> = entries.iter().map(|(key, mark, _)| (key, (mark.line, mark.column))).collect();
    keys.sort_unstable();
    let twins = keys.windows(2).find(|pair| pair[0].0 == pair[1].0);
    twins.map_or(Ok(()), |pair| {
        let (key, (line, column)) = pair[1];
        Err(Syntax { message: format!("the key `{key}` is duplicated"), mark: Mark { line, column } })
    })
}

/// A value that was left out.
const fn empty(mark: Mark) -> Node {
    Node { value: Value::Scalar(String::new()), mark }
}
