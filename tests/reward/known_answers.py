"""Answers whose verdicts are known: each fact in several notations that are right and several that are wrong.

Facts of mathematics follow from their statement and are checked by hand; `source` names where the others stand.
CODATA: the 2022 recommended values of the fundamental constants (NIST SP 961). SI: the SI Brochure, 9th edition (BIPM
2019), for defined constants and conversions; NIST SP 811 for those of customary units. IUPAC: the standard atomic
weights of 2021. OEIS: the On-Line Encyclopedia of Integer Sequences, by the number of the sequence. DLMF: the NIST
Digital Library of Mathematical Functions, by section. MATH: the notations that the graders of the MATH data set
(Hendrycks et al. 2021) had to cope with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fact:
    verifier: str
    answer: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    source: str
    metadata: dict[str, Any] = field(default_factory=dict)


def math(answer: str, right: list[str], wrong: list[str], source: str = "arithmetic") -> Fact:
    return Fact("math", answer, tuple(right), tuple(wrong), source)


def number(answer: str, right: list[str], wrong: list[str], source: str = "arithmetic", **metadata: Any) -> Fact:
    return Fact("numeric", answer, tuple(right), tuple(wrong), source, metadata)


def exact(answer: str, right: list[str], wrong: list[str], source: str, **metadata: Any) -> Fact:
    return Fact("exact", answer, tuple(right), tuple(wrong), source, metadata)


FACTS = [
    # Mathematics, by math-verify: fractions, decimals, percent.
    math("1/2", ["0.5", r"\frac{1}{2}", r"\frac12", r"$\frac{2}{4}$", r"\dfrac{1}{2}", r"\boxed{1/2}", ".5", r"2^{-1}"],
         ["0.6", r"\frac{1}{3}", "2", r"-\frac{1}{2}", r"\frac{2}{1}"], "MATH"),
    math("3/4", [r"\frac{3}{4}", "0.75", r"$\frac{6}{8}$", r"75\%", r"\tfrac{3}{4}", r"1 - \frac{1}{4}"],
         ["0.7", r"\frac{4}{3}", "34", r"7.5\%"], "MATH"),
    math(r"\frac{22}{7}", ["22/7", r"3\frac{1}{7}", r"\frac{44}{14}"], ["3.14", r"\pi", r"\frac{7}{22}"], "arithmetic"),
    math("-7", ["-7", "$-7$", r"-\frac{14}{2}", "-7.0", r"\boxed{-7}", r"3 - 10"], ["7", "-6", "0", r"\frac{-7}{2}"]),
    math("1024", ["1024", "2^{10}", r"$2^{10}$", "1{,}024", r"4^5", r"32 \cdot 32", r"32 \times 32", "1,024"],
         ["1000", "2^{9}", "1023", "10^3", "2 \\cdot 10"]),
    # Roots and powers.
    math(r"\sqrt{2}", [r"\sqrt{2}", r"$\sqrt2$", r"2^{1/2}", r"\frac{2}{\sqrt{2}}", r"\sqrt{8}/2", r"2^{\frac12}"],
         ["1.4", "2", r"\sqrt{3}", r"-\sqrt{2}", r"\frac{1}{\sqrt{2}}"]),
    math(r"\frac{\sqrt{3}}{3}", [r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt3}{3}", r"\tan(\pi/6)", r"3^{-1/2}"],
         [r"\sqrt{3}", r"\frac{\sqrt{3}}{2}", r"\frac{1}{3}"], "DLMF 4.17"),
    math(r"2\sqrt{5}", [r"\sqrt{20}", r"2 \cdot \sqrt{5}", r"2\sqrt5", r"\frac{10}{\sqrt{5}}"],
         [r"\sqrt{10}", r"5\sqrt{2}", r"2\sqrt{5} + 1", r"20"]),
    math(r"\sqrt[3]{16}", [r"2\sqrt[3]{2}", r"16^{1/3}", r"2^{4/3}"], [r"\sqrt{16}", "4", r"\sqrt[3]{2}"]),
    # Constants and values of functions.
    math(r"\pi", [r"\pi", r"$\pi$", r"\frac{2\pi}{2}", r"4 \cdot \frac{\pi}{4}"],
         ["3", "3.14", r"2\pi", r"\pi^2", "e"], "DLMF 3.12"),
    math(r"\frac{\pi^2}{6}", [r"\pi^2/6", r"\frac{1}{6}\pi^2", r"\frac{\pi^{2}}{6}"],
         [r"\frac{\pi^2}{8}", r"\frac{\pi}{6}", "1.64"], "DLMF 25.6"),
    math("e^2", ["e^2", r"e^{2}", r"\exp(2)", r"e \cdot e"], ["2e", "7.389", "e", r"e^{-2}"]),
    math(r"\ln 2", [r"\ln 2", r"\ln(2)", r"\log(2)", r"-\ln(1/2)"], [r"\ln 3", "2", "0.69"]),
    math(r"\sin(\pi/3)", [r"\frac{\sqrt{3}}{2}", r"\sin\left(\frac{\pi}{3}\right)", r"\cos(\pi/6)"],
         [r"\frac{1}{2}", r"\frac{\sqrt{2}}{2}", r"\sqrt{3}"], "DLMF 4.17"),
    # Algebra.
    math("x^2 - 1", ["x^2-1", "(x-1)(x+1)", "-1 + x^2", r"(x+1)\cdot(x-1)"], ["x^2 + 1", "(x-1)^2", "x^2", "1 - x^2"]),
    math("(a+b)^2", ["a^2 + 2ab + b^2", "(b+a)^2", "a^2+b^2+2ab"], ["a^2 + b^2", "a^2 - 2ab + b^2", "2(a+b)"]),
    math(r"\frac{x}{x+1}", [r"1 - \frac{1}{x+1}", r"\frac{2x}{2x+2}", "x/(x+1)"],
         [r"\frac{x+1}{x}", r"\frac{1}{x+1}", "x"]),
    math("3x + 2", ["2 + 3x", "3x+2", "3*x + 2"], ["3x - 2", "2x + 3", "5x"]),
    math(r"\frac{n(n+1)}{2}", ["n(n+1)/2", r"\frac{n^2+n}{2}", r"\frac{1}{2}n(n+1)"],
         [r"\frac{n(n-1)}{2}", "n(n+1)", r"n^2"], "OEIS A000217"),
    math("x = 5", ["x=5", "5", r"$x = 5$", r"x = \frac{10}{2}"], ["x = -5", "x = 4", "6"]),
    # Sets, tuples, intervals.
    math(r"\{1, 2, 3\}", [r"\{3, 2, 1\}", r"\{1,2,3\}", r"$\{1, 3, 2\}$"], [r"\{1, 2\}", r"\{1, 2, 4\}"], "MATH"),
    math("(2, 3)", ["(2,3)", r"$(2, 3)$", r"\left(2, 3\right)"], ["(3, 2)", "(2, 4)"], "MATH"),
    math("[0, 1)", ["[0,1)", r"$[0, 1)$", r"\left[0, 1\right)"], ["[0, 1]", "(0, 1)", "[0, 2)"], "MATH"),
    math(r"(-\infty, 2]", [r"(-\infty,2]", r"\left(-\infty, 2\right]"], [r"(-\infty, 2)", r"[2, \infty)"], "MATH"),
    math("1 + 2i", ["1+2i", "2i + 1", r"$1 + 2i$"], ["1 - 2i", "2 + i", "3i"], "MATH"),
    math(r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
         [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}"],
         [r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix}"], "MATH"),
    math(r"\binom{5}{2}", ["10", r"\binom{5}{3}", r"\frac{5!}{2!3!}"], ["20", r"\binom{5}{1}", "5"], "OEIS A007318"),
    math("5!", ["120", "5!", r"5 \cdot 4 \cdot 3 \cdot 2"], ["24", "720", "5"], "OEIS A000142"),
    # Numbers, by rule.
    number("1000", ["1000", "1,000", "1000.0", "1e3", "1.0e3", "+1000", "2000/2"],
           ["100", "10000", "1,001", "-1000", "a thousand", "1e4"]),
    number("-3/4", ["-3/4", "-0.75", "-0.750", "-6/8"], ["3/4", "-0.7", "-4/3"]),
    number("0.001", ["0.001", "1e-3", "1/1000", "0.0010"], ["0.01", "1e-2", "0", "1e3"]),
    number("299792458", ["299792458", "299,792,458", "2.99792458e8"], ["3e8", "299792459", "299792.458"],
           "SI: speed of light in m/s, exact"),
    number("3.14159265", ["3.14159265", "3.1416", "3.14", "22/7"], ["3.1", "3.2", "31.4159"], "DLMF 3.12",
           tolerance=0.001),
    number("6.02214076e23", ["6.02214076e23", "6.022e23"], ["6.022e22", "6.5e23", "6.022"],
           "SI: Avogadro constant, exact", tolerance=1e-3),
    number("40", ["40", "40.0", "39.9", "40.1"], ["41", "39", "-40"], "arithmetic", tolerance=0.005),
    number("0", ["0", "0.0", "-0", "0/5"], ["1", "0.1", "1e-9"]),
    number("8128", ["8128", "8,128", "8128.00"], ["8127", "812.8"], "OEIS A000396: perfect numbers"),
    number("1729", ["1729", "1,729", "1.729e3"], ["1728", "1730"], "OEIS A001235: taxicab numbers"),
    number("5050", ["5050", "5,050", "10100/2"], ["5000", "5051"], "OEIS A000217"),
    number("354224848179261915075", ["354224848179261915075", "354,224,848,179,261,915,075"],
           ["354224848179261915076", "3.54224848179261915e20"], "OEIS A000045: F(100)"),
    # Quantities.
    number("299792.458 km/s", ["299792.458 km/s", "299792458 m/s", "2.99792458e8 m/s", r"2.99792458 \times 10^8 m/s",
                               "2.99792458 × 10^8 m/s", "299,792.458 km/s", r"299792.458\,\text{km/s}"],
           ["299792.458 m/s", "3e5 km/s", "299792.458 km", "299792.458 km/h"], "SI: speed of light, exact"),
    number("3.6 km/h", ["1 m/s", "3.6 km/h", "100 cm/s", "3.6 kilometers/hour", "3.6"],
           ["3.6 m/s", "1 km/h", "3.6 km", "36 km/h"], "SI"),
    number("1609.344 m", ["1 mile", "1.609344 km", "1609.344 meters", "160934.4 cm", "5280 ft", "1760 yards"],
           ["1600 m", "1 km", "1609.344 km", "1609.344 s"], "NIST SP 811: the international mile"),
    number("453.59237 g", ["1 lb", "0.45359237 kg", "453.59237 grams", "16 oz"], ["454 kg", "1 kg", "453 g", "1 m"],
           "NIST SP 811: the avoirdupois pound"),
    number("25.4 mm", ["1 inch", "2.54 cm", "25.4 millimeters", "0.0254 m"], ["25.4 cm", "1 ft", "2.5 cm"],
           "NIST SP 811: the inch"),
    number("9.80665 m/s^2", ["9.80665 m/s^2", "9.80665 m/s**2", "980.665 cm/s^2", r"9.80665\ \text{m/s}^2", "9.80665"],
           ["9.80665 m/s", "9.8 km/s^2", "10 m/s^2"], "SI: standard acceleration of gravity"),
    number("101325 Pa", ["1 atm", "101.325 kPa", "1013.25 hPa", "101325 pascal", "760 torr"],
           ["101325 kPa", "1 bar", "100 kPa", "101325 N"], "SI: standard atmosphere", tolerance=1e-6),
    number("8.314462618 J/(mol*K)", ["8.314462618 J/(mol*K)", "8.314 J/(mol*K)", "8.314462618 J/mol/K", "8.31446"],
           ["8.314 J/mol", "0.08206 J/(mol*K)", "83.14 J/(mol*K)"], "CODATA: molar gas constant", tolerance=1e-3),
    number("1.602176634e-19 C", ["1.602176634e-19 C", r"1.602176634 \times 10^{-19} C", "1.602e-19 coulomb"],
           ["1.602e-18 C", "1.602e-19 J", "1.6 C"], "SI: elementary charge, exact", tolerance=1e-3),
    number("6.62607015e-34 J*s", ["6.62607015e-34 J*s", "6.626e-34 joule*second", r"6.626 \cdot 10^{-34} J s"],
           ["6.626e-34 J", "6.626e-33 J*s", "1.0546e-34 J*s"], "SI: Planck constant, exact", tolerance=1e-3),
    number("1.380649e-23 J/K", ["1.380649e-23 J/K", "1.3806e-23 joule/kelvin"], ["1.38e-22 J/K", "1.38e-23 J"],
           "SI: Boltzmann constant, exact", tolerance=1e-3),
    number("12.011 g/mol", ["12.011 g/mol", "0.012011 kg/mol", "12.011"], ["12.011 kg/mol", "14.007 g/mol"],
           "IUPAC: carbon", tolerance=1e-4),
    number("55.845 g/mol", ["55.845 g/mol", "55.85 g/mol"], ["26 g/mol", "55.845 g"], "IUPAC: iron", tolerance=1e-3),
    number("1 h", ["3600 s", "60 min", "1 hour"], ["1 s", "60 s", "1 m"], "SI"),
    number("4.184 J", ["1 cal", "0.004184 kJ", "4.184 joules"], ["4.184 kJ", "1 J", "4.184 W"],
           "NIST SP 811: the thermochemical calorie", tolerance=1e-6),
    number("0.25", ["25%", "0.25", "1/4", "25 percent", r"25\%"], ["25", "2.5%", "0.4"], "arithmetic", unit=""),
    number("50 %", ["50%", "50 percent", "50"], ["5%", "50 m"], "arithmetic"),
    # Words, by rule.
    exact("Paris", ["Paris", " Paris ", "Paris\n"], ["paris", "London", "Paris.", "The city of Paris"],
          "UN: M49 list of countries and capitals"),
    exact("New York", ["New York", "new york", "NEW  YORK"], ["York", "NewYork"], "UN/LOCODE US NYC", ignore_case=True),
    exact("B", ["B", "b", " B "], ["A", "BB", "(B)", "B or C"], "multiple choice", ignore_case=True),
    exact("deoxyribonucleic acid", ["deoxyribonucleic acid", "DNA"], ["RNA", "dna", "ribonucleic acid"],
          "IUPAC-IUB nomenclature", accept=["DNA"]),
    exact("Straße", ["Straße", "STRASSE", "strasse"], ["Strase"], "Unicode: CaseFolding, sharp s", ignore_case=True),
    exact("H2O", ["H2O"], ["H20", "h2o", "HO2"], "IUPAC Red Book"),
    # Patterns and schemas.
    Fact("regex", "", ("2024-02-29", "1999-12-31"), ("2024-2-29", "29.02.2024", "x2024-02-29"),
         "ISO 8601: calendar date", {"pattern": r"\d{4}-\d{2}-\d{2}"}),
    Fact("regex", "", ("AUTO", "auto", "Auto"), ("auto mobile", ""), "by hand", {"pattern": "auto", "flags": "i"}),
    Fact("json_schema", "", ('{"name": "a", "age": 3}', '```json\n{"name": "b", "age": 0}\n```', '{"age":1,"name":""}'),
         ('{"name": "a"}', '{"name": 1, "age": 3}', '{"name": "a", "age": -1}', "name: a", '["a", 3]',
          '{"name": "a",}'),
         "JSON Schema 2020-12, validation vocabulary",
         {"schema": {"type": "object", "required": ["name", "age"],
                     "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}}}),
    Fact("reasoning_gym:gcd", "12", ("12",), ("6", "24", "twelve"), "reasoning-gym: gcd scores the number"),
    Fact("reasoning_gym:chain_sum", "-5", ("-5",), ("5", "-4"), "reasoning-gym: chain_sum scores the number"),
    Fact("reasoning_gym:spell_backward", "olleh", ("olleh",), ("hello", "ollehh"), "reasoning-gym: spell_backward"),
]  # fmt: skip
