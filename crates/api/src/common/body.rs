//! [`RequestBody`]: the bodies of requests.

use crate::RequestError;
use crate::common::input::{Input, ObjectInput};

/// The body of a request: a JSON object.
pub trait RequestBody: Sized {
    /// Reads the fields of the object. The caller refuses the fields that are left.
    #[doc(hidden)]
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError>;

    /// Reads the body of a request.
    ///
    /// # Errors
    /// If the body is not valid. The error says where the fault is and how to mend it.
    fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        Input::body(body)?.read_object(Self::read)
    }
}
