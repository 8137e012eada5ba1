//! The data directory and its journal: full, moved, shared, damaged, and maintained.

mod database_moved;
mod disk_quotas;
mod journal;
mod maintenance;
mod shared_data_dir;
mod workspace_files;
