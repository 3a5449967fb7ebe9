"""What a file says about itself: language, marks, definitions, measures, licence. Pure: bytes in, facts out."""
