//! `conjure chat`: a conversation at the terminal.

mod command;
mod conversation;
mod help;

mod chat_command;
mod chat_model;
mod session_commands;
mod undo;

mod line_editor;
mod line_input;
mod plain_lines;

mod chat_display;
mod text_stream;

pub(crate) use command::chat;
