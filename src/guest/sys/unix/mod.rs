//! The Unix half: Linux first, with what every Unix has as the fallback.
