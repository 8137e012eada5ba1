//! What a pool keeps in stock, and the factory that makes it.

use std::fmt;

use conjure_base::Deadline;
use conjure_sandbox::SandboxError;
use futures_util::future::BoxFuture;

/// What is made before anybody needs it.
pub trait PoolItem: Send + 'static {
    /// Whether it has not ended, as far as anybody knows.
    fn is_live(&self) -> bool;

    /// Resolves when it has ended by itself, also while somebody has it.
    fn ended(&self) -> BoxFuture<'static, SandboxError>;

    /// Ends it, and returns when nothing of it is left. Bounds itself.
    fn retire(self) -> impl Future<Output = ()> + Send + 'static;
}

/// Makes the spares of one pool.
pub trait PoolItemFactory: Send + Sync + fmt::Debug + 'static {
    /// What it makes.
    type Item: PoolItem;

    /// Makes one, and returns when it is ready for whoever claims it. Dropping the future releases what was made so far.
    ///
    /// # Errors
    /// Why there is none; `Unsupported` where there never can be one. Nothing is left of it then.
    fn make(&self, deadline: Deadline) -> BoxFuture<'_, Result<Self::Item, SandboxError>>;
}
