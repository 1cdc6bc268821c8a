"""Macro expansion over tokens as in C's preprocessor, with bounds against malicious headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ringup.autogen.generate.c.tokens import (
    NAME,
    PLACEMARKER,
    PUNCTUATOR,
    STRING,
    Token,
    Unreadable,
    lex,
    relex,
)

# Limit of one expansion; the largest real macro of the NVIDIA and AMD headers needs a few hundred.
TOKENS_MAX = 20_000
DEPTH_MAX = 100

_EMPTY = Token(PLACEMARKER, "")


@dataclass(slots=True)
class Definition:
    """One `#define`. `params` is None for an object-like macro; `body` is source text, comments included."""

    name: str
    params: tuple[str, ...] | None
    body: str
    where: str
    variadic: str = ""  # the name of the parameter that takes the rest
    refused: str = ""  # why its value cannot be determined
    _tokens: list[Token] | None = None

    def tokens(self) -> list[Token]:
        if self._tokens is None:
            self._tokens = lex(self.body)
        return self._tokens


@dataclass(slots=True)
class Expansion:
    """One run of the preprocessor over one macro; it counts the tokens made."""

    find: Callable[[str], Definition | None]
    made: int = field(default=0, init=False)

    def spend(self, count: int) -> None:
        self.made += count
        if self.made > TOKENS_MAX:
            raise Unreadable(f"expands to more than {TOKENS_MAX} tokens")

    def expand(self, tokens: Sequence[Token], depth: int = 0) -> list[Token]:
        """Return `tokens` with every macro in them replaced, as often as C allows."""
        if depth > DEPTH_MAX:
            raise Unreadable(f"macro calls nested more than {DEPTH_MAX} deep")
        todo = list(reversed(tokens))
        done: list[Token] = []
        while todo:
            token = todo.pop()
            if token.kind != NAME or token.text in token.hidden or (macro := self.find(token.text)) is None:
                done.append(token)
                continue
            if macro.params is None:
                body = self._substitute(macro, {}, depth)
                hidden = token.hidden | {macro.name}
            else:
                if not todo or todo[-1].text != "(" or todo[-1].kind != PUNCTUATOR:
                    done.append(token)
                    continue
                todo.pop()
                given, close = self._arguments(macro, todo)
                body = self._substitute(macro, self._bind(macro, given), depth)
                hidden = (token.hidden & close.hidden) | {macro.name}
            if len(hidden) > DEPTH_MAX:
                raise Unreadable(f"macros nested more than {DEPTH_MAX} deep")
            self.spend(len(body) + 1)
            if body:
                body = [body[0]._replace(spaced=token.spaced), *body[1:]]
            for made in reversed(body):
                todo.append(Token(made.kind, made.text, made.spaced, made.hidden | hidden if made.hidden else hidden))
        return done

    def _arguments(self, macro: Definition, todo: list[Token]) -> tuple[list[list[Token]], Token]:
        """Take the arguments of a call off `todo`, after its open parenthesis."""
        given: list[list[Token]] = [[]]
        level = 0
        while todo:
            token = todo.pop()
            if token.kind == PUNCTUATOR:
                if token.text == ")":
                    if level == 0:
                        return given, token
                    level -= 1
                elif token.text == "(":
                    level += 1
                elif token.text == "," and level == 0:
                    given.append([])
                    continue
            given[-1].append(token)
        raise Unreadable(f"the call of {macro.name} has no closing parenthesis")

    def _bind(self, macro: Definition, given: list[list[Token]]) -> dict[str, list[Token]]:
        params = macro.params or ()
        if macro.variadic:
            fixed = len(params) - 1
            if len(given) == fixed:
                # GNU and C23: the rest may be missing, with its comma
                given = [*given, []]
            if len(given) > fixed:
                rest = list(given[fixed])
                for more in given[fixed + 1 :]:
                    rest.append(Token(PUNCTUATOR, ","))
                    rest += more
                given = [*given[:fixed], rest]
        if not params and given == [[]]:
            given = []
        if len(given) != len(params):
            raise Unreadable(f"{macro.name} takes {len(params)} arguments, not {len(given)}")
        return dict(zip(params, given, strict=True))

    def _substitute(self, macro: Definition, given: dict[str, list[Token]], depth: int) -> list[Token]:
        """Return the body of `macro` with its parameters replaced and `#` and `##` applied. Macros in it are not
        expanded yet.
        """
        body = macro.tokens()
        if not given and not any(token.text == "##" for token in body):
            return body
        expanded: dict[str, list[Token]] = {}
        out: list[Token] = []
        at, end = 0, len(body)
        while at < end:
            token = body[at]
            follows = body[at + 1] if at + 1 < end else None
            if token.text == "#" and macro.params is not None and token.kind == PUNCTUATOR:
                if follows is None or follows.text not in given:
                    raise Unreadable("# stands before something that is no parameter")
                out.append(self._stringize(given[follows.text], token.spaced))
                at += 2
                continue
            if token.text == "##" and token.kind == PUNCTUATOR:
                if not out or follows is None:
                    raise Unreadable("## stands at an end of the body")
                at += 2
                if follows.text == "#" and macro.params is not None and at < end and body[at].text in given:
                    right = [self._stringize(given[body[at].text], False)]
                    at += 1
                else:
                    right = given.get(follows.text, [follows]) if follows.kind == NAME else [follows]
                self._paste(macro, out, right, follows)
                continue
            if token.kind == NAME and token.text in given:
                argument = given[token.text]
                if follows is None or follows.text != "##":
                    if token.text not in expanded:
                        expanded[token.text] = self.expand(argument, depth + 1)
                    argument = expanded[token.text]
                elif not argument:
                    argument = [_EMPTY]
                self.spend(len(argument))
                if argument:
                    out.append(argument[0]._replace(spaced=token.spaced))
                    out += argument[1:]
            else:
                out.append(token)
            at += 1
        return [token for token in out if token.kind != PLACEMARKER]

    def _paste(self, macro: Definition, out: list[Token], right: list[Token], parameter: Token) -> None:
        """Join the last token of `out` with the first of `right`, as `##` does."""
        left = out.pop()
        if left.text == "," and left.kind == PUNCTUATOR and macro.variadic and parameter.text == macro.variadic:
            # GNU: an empty rest removes the comma
            out += [left, *right] if right else []
            return
        if not right:
            right = [_EMPTY]
        text = left.text + right[0].text
        self.spend(len(right) + len(text) // 16)
        joined = relex(text) if text else _EMPTY
        if joined is None:
            raise Unreadable(f"## makes {text[:40]!r}, which is no token")
        out.append(joined._replace(spaced=left.spaced, hidden=left.hidden & right[0].hidden))
        out += right[1:]

    def _stringize(self, tokens: list[Token], spaced: bool) -> Token:
        parts = []
        for at, token in enumerate(tokens):
            if token.spaced and at:
                parts.append(" ")
            text = token.text
            if token.kind == STRING or "'" in text:
                text = text.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(text)
        made = "".join(parts)
        self.spend(1 + len(made) // 16)
        literal = relex(f'"{made}"')
        if literal is None or literal.kind != STRING:
            raise Unreadable("# makes no string of its argument")
        return literal._replace(spaced=spaced)
