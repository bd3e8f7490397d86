"""An experiment's result: in the terminal, as a picture, and as a document in the forms of lab notes."""
