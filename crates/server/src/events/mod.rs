//! Conversions between the library's events and the API's events.

mod blocks;
mod input;
mod mapping;
mod previews;

#[cfg(test)]
mod tests;

pub(crate) use blocks::{message_blocks, result_contents};
pub(crate) use input::input_answers;
pub(crate) use mapping::api_events;
pub(crate) use previews::PreviewMapping;
