"""What most languages write alike."""

COMPARE = '["==" "!=" "<" ">" "<=" ">="]'
AND_OR = '["&&" "||"]'
