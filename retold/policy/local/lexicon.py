"""Word lists behind the turn features, in the languages the authored corpus covers.

A list only ever feeds one feature of a trained head, so a missing language costs recall there and nothing else.
Entries of scripts with spaces match whole words (phrases: whole words in a row); entries of scripts without spaces
match anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property

_UNSPACED = re.compile("[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff]")
_NOT_WORD = re.compile(r"[^\w\u0900-\u097f]+")


def spaced(text: str) -> str:
    """The text's folded words between single spaces, one at each end, so that whole words can be searched."""
    folded = unicodedata.normalize("NFC", text).casefold().replace("’", "'").replace("'", " ")
    return f" {_NOT_WORD.sub(' ', folded).strip()} "


class Lexicon:
    """A closed list of words and phrases; `in_` and `starts` ask about text prepared by :func:`spaced`."""

    def __init__(self, entries: str) -> None:
        phrases = {part.strip() for line in entries.splitlines() for part in line.split(",")} - {""}
        self._unspaced = tuple(sorted(phrase for phrase in phrases if _UNSPACED.search(phrase)))
        self._spaced = sorted((spaced(phrase).strip() for phrase in phrases - set(self._unspaced)), key=len)

    @cached_property
    def _anywhere(self) -> re.Pattern[str]:
        return re.compile(f"(?<= )(?:{'|'.join(map(re.escape, reversed(self._spaced)))})(?= )")

    def in_(self, prepared: str) -> bool:
        return self.count(prepared) > 0

    def count(self, prepared: str) -> int:
        return len(self._anywhere.findall(prepared)) + sum(prepared.count(phrase) for phrase in self._unspaced)

    def starts(self, prepared: str) -> bool:
        head = prepared[1:]
        return self._anywhere.match(prepared, 1) is not None or any(head.startswith(each) for each in self._unspaced)


FIRST_PERSON = Lexicon("""
    i, im, i m, ive, i ve, i d, i ll, ich, je, j, yo, eu, ik, io, मैं, मैंने, я, 我, 俺, 私, 僕, 나, 내가,
    أنا
""")
MY = Lexicon("""
    my, mine, mein, meine, meinen, meinem, meiner, meines, mon, ma, mes, mi, mis, mío, meu, minha, meus,
    minhas, mijn, mio, mia, miei, mie, मेरा, मेरी, मेरे, अपना, अपनी, अपने, мой, моя, моё, мои, мою, моей,
    моего, mój, moja, moje, mojego, 我的, 私の, 僕の, 내, 제
""")
ME = Lexicon("me, mir, mich, moi, me, मुझे, мне, меня, mij, mi, mnie, bana, beni, 给我, 借给我, 帮我, 나에게")
WE = Lexicon("we, our, us, wir, unser, unsere, uns, nous, notre, nos, nuestro, nuestra, हम, हमने, мы, wij, 我们, 咱们")
MEMORY = Lexicon("""
    remember, remind me, remind, told you, tell you, i told, i said, i say, did i, have i, do i, am i, was i,
    mentioned, mention, last time, again, usual, usually, previously, before, earlier, we decided, we agreed,
    we discussed, we chose, did we, do we, have we, leave off, left off, we stopped, talked about,
    talking about, as always, the way we, erinnerst, erinnere, erzählt, gesagt, letztes mal, üblichen, übliche,
    wie immer, stehen geblieben, besprochen, hatten wir, souviens, rappelle, dit à propos, je t ai dit,
    habituel, la dernière fois, avons nous, en étions nous, recuerdas, te conté, te dije, de siempre,
    la última vez, lo dejamos, hablamos, elegimos, याद, बताया था, कहा था, हमेशा वाले, पिछली बार, रुके थे,
    चुना था, 记得, 说过, 跟你说, 老地方, 上次, 说到哪里, 聊了, 本来, 前回, いつもの, 話しましたか,
    ricordi, ti ho detto, te contei, помнишь
""")
PAST = Lexicon("""
    did, was, were, had, has, have, been, went, used to, hat, hatte, habe, haben, wurde, waren, ai, avons,
    ont, était, suis, fue, era, dijo, hizo, había, prestó, था, थी, थे, heeft, 了, 过, でしたか, ましたか,
    было, сказал, miał
""")
WH = Lexicon("""
    what, when, where, who, whom, whose, which, why, how, whats, what s, when s, where s, who s, was, wann, wo,
    wer, welche, welcher, welches, welchen, warum, wie, wohin, worüber, wofür, womit, mit wem, que, qu, quand,
    où, qui, quel, quelle, pourquoi, comment, qué, cuándo, dónde, quién, cuál, cómo, क्या, कब, कहाँ, कौन,
    किसने, क्यों, wat, wanneer, waar, che, quando, dove, come, o que, como, onde, что, когда, где, как, co,
    kiedy, gdzie, ne
""")
HOW_TO = Lexicon("""
    how do you, how do i, how does one, how can i, how to, how can one, how is, how are, how does a,
    how does the, how do, what is a, what is an, what are the, what are some, what is the difference,
    what does a, what is the best way to, explain, wie funktioniert, wie berechnet man, was ist, wie backt man,
    qu est ce que, comment fonctionne, qué es, cómo funciona, cómo se, क्या है, कैसे, 什么是, 怎么, 如何, とは何, nedir,
    co to jest, что такое, wat is, che cos è, o que é
""")
TASK = Lexicon("""
    write, compose, translate, rewrite, paraphrase, summarise, summarize, explain, describe, list, name,
    define, compare, classify, convert, correct, edit, generate, create, evaluate, rate, calculate, compute,
    solve, find, identify, implement, pretend, imagine, act as, you are, suppose, given, tell, give, show,
    turn, complete, extract, come up with, rank, sort, draw, provide, design, develop, outline, discuss,
    analyze, analyse, answer, fill, determine, assume, read, here is, schreibe, übersetze, erkläre, nenne,
    korrigiere, écris, traduis, explique, cite, corrige, escribe, traduce, explica, nombra, लिखो, अनुवाद,
    समझाओ, 写, 翻译, 解释, 改正, 说出, 書いて, 翻訳, 説明, 評価, 訂正, 挙げて,
    써 줘, اكتب, yaz, napisz, напиши, scrivi, escreve,
    schrijf, 次の, 以下の, 想像
""")
SELF_CONTAINED = Lexicon("""
    following, this sentence, this text, this paragraph, this poem, my code, my function, my program,
    my script, my essay, error, variable, function, array, regex, sentence, poem, story, paragraph, passage,
    text, code, in python, in java, sql, javascript, css, html, bash, git, docker, word for, synonym, synonyms,
    grammar, the phrase, 文章, 段落, 句子
""")
HYPOTHETICAL = Lexicon(
    "if, suppose, imagine, pretend, assume, given that, let s say, wenn, angenommen, si, falls, 如果, もし, let"
)
ADVICE = Lexicon("""
    recommend, recommendation, recommendations, suggest, suggestion, suggestions, should i, should we, ideas,
    idea, options, what can i, what could i, where can i, could i, help me, plan, looking for, any tips,
    advice, i m planning, i want to, i d like to, i need, best, good, favorite, soll ich, sollte ich,
    könnte ich, kann ich, empfehlen, empfiehl, vorschlagen, plane mir, devrais je, recommander, conseille,
    pourrais je, proposerais, debería, recomendar, recomiéndame, podría, puedo, चाहिए, सुझा, सुझाओ, दूँ, 推荐, 该,
    可以, 应该, 勧めて, べき, いいですか, dovrei, consigli, devo, aanraden, zal ik, посоветуй
""")
KIN = Lexicon("""
    sister, brother, mother, father, mom, mum, dad, son, daughter, wife, husband, partner, girlfriend,
    boyfriend, friend, friends, cousin, aunt, uncle, niece, nephew, grandmother, grandfather, parents, kids,
    children, boss, manager, colleague, colleagues, doctor, dentist, therapist, neighbour, neighbor, landlord,
    teacher, team, client, customer, family, dog, cat, chef, freundin, freund, mutter, vater, schwester,
    bruder, arzt, mère, père, soeur, frère, madre, padre, hermano, hermana, jefe, médico, माँ, भाई, बहन, बॉस,
    妈妈, 父母, 老板, 医生, 妹妹, 哥哥
""")
RELATIVES = (
    "sister", "brother", "mother", "father", "son", "daughter", "wife", "husband", "partner", "girlfriend", "boyfriend",
    "cousin", "aunt", "uncle", "niece", "nephew", "grandmother", "grandfather", "boss", "neighbour", "neighbor",
    "landlord", "friend", "colleague",
)  # fmt: skip
KEEPSAKE = Lexicon("""
    birthday, anniversary, appointment, favourite, favorite, hobby, hobbies, job, plan, plans, trip, visit,
    gift, party, wedding, meeting, interview, project, deadline, budget, limit, lease, staging, cluster,
    region, contact, time zone, address, tattoo, class, classes, tournament, setback, relationship, goal,
    goals, weekend, holiday, vacation, team, flight, geburtstag, termin, vertrag, anniversaire, rendez vous,
    contrat, cumpleaños, cita, contrato, जन्मदिन, अपॉइंटमेंट, 生日, 预约, 合同
""")
WHEN_SAID = Lexicon("""
    yesterday, today, tomorrow, tonight, last week, last month, last year, last summer, last weekend,
    last night, recently, lately, currently, upcoming, now, yet, still, already, this week, next week,
    on monday, on tuesday, on friday, on saturday, gestern, letzte woche, hier, la semaine dernière, ayer,
    la semana pasada, कल, पिछले, 昨天, 上周, 昨日, january, february, april, june, july, august, september, october,
    november, december, 2019, 2020, 2021, 2022, 2023, 2024, 2025, 2026
""")
GIVEN_NAMES = Lexicon("""
    aaron, abby, ada, adam, adele, adrian, agnes, ahmed, aisha, alan, albert, alejandro, alex, alexander,
    alexandra, alfie, ali, alice, alina, alison, amanda, amara, amber, amelia, amina, amir, amit, amy, ana,
    andrea, andreas, andrew, andy, angela, anika, anita, ann, anna, anne, annie, anouk, anthony, anton,
    antonio, anya, arjun, arthur, arun, asha, ashley, astrid, audrey, aya, barbara, bastian, bea, beatrice,
    becky, ben, benjamin, beth, bianca, bill, billy, bob, bonnie, brandon, brenda, brian, bridget, bruno,
    callum, calvin, camila, carl, carla, carlos, carmen, carol, caroline, carrie, cathy, cecilia, celine,
    charles, charlie, charlotte, chen, chloe, chris, christian, christina, christine, christopher, cindy,
    claire, clara, claudia, colin, connor, craig, daisy, dan, dana, daniel, daniela, danny, dave, david,
    debbie, deborah, deniz, dennis, derek, diana, diane, diego, dimitri, dominic, don, donna, doris, doug,
    dylan, ed, eddie, edith, eduardo, edward, elena, eli, elias, elif, elizabeth, ella, ellen, ellie, emil,
    emily, emma, emre, eric, erik, erika, erin, esther, ethan, eva, evan, evelyn, faith, farah, farid, fatima,
    felix, fernando, fiona, florian, frances, francesca, francis, frank, fred, freya, gabriel, gabriela, gary,
    gavin, george, georgia, gina, giulia, glen, gloria, grace, greg, greta, gus, hana, hanna, hannah, harry,
    hassan, hazel, heather, heidi, helen, helena, henry, holly, hugo, ian, ibrahim, ida, idris, igor, ines,
    ingrid, irene, iris, isaac, isabel, isabella, ivan, ivo, ivy, jack, jackie, jacob, jade, jake, james,
    jamie, jan, jane, janet, jason, javier, jean, jeff, jennifer, jenny, jeremy, jerry, jess, jessica, jill,
    jim, joan, joanna, joe, joel, johan, john, johnny, jolene, jon, jonas, jonathan, jordan, jorge, jose,
    joseph, josh, joshua, joy, juan, judith, judy, julia, julian, julie, juliet, justin, kai, karen, karl,
    karim, karin, kate, katherine, kathy, katie, keiko, keith, kelly, ken, kenji, kenneth, kerry, kevin, kim,
    kyle, lara, lars, laura, lauren, layla, lea, leah, lena, leo, leon, leonie, leroy, leyla, lily, linda,
    lisa, liam, lotte, louis, louise, luca, lucas, lucia, lucy, luis, luke, lydia, maja, malik, marco, marcus,
    margaret, maria, marie, mario, marion, mark, marta, martha, martin, mary, mateo, matt, matthew, max, maya,
    megan, mei, melanie, melissa, mia, michael, michelle, miguel, mika, mike, mila, mina, mira, miriam,
    mireille, mohammed, molly, monica, nadia, naomi, natalie, natasha, nate, nathan, neil, nick, nicola,
    nicolas, nicole, nigel, nikhil, nils, nina, noah, noor, nora, oksana, olga, oliver, olivia, olu, omar,
    oscar, oskar, owen, pablo, pam, patricia, patrick, paul, paula, pavel, pedro, penny, peter, phil, philip,
    priya, rachel, rahul, raj, ralph, raul, ravi, rebecca, ricardo, richard, rick, rita, rob, robert, roberto,
    robin, roger, ron, rosa, rosalind, rosie, ross, ruben, ruth, ryan, sabine, sally, sam, samantha, samir,
    samuel, sandra, sanjay, sara, sarah, scott, sean, sebastian, sergio, shannon, sharon, shaun, silas, silvia,
    simon, sofia, sonia, sophia, sophie, stefan, stella, stephanie, stephen, steve, steven, sue, sunita, susan,
    susie, suzanne, sven, tamara, tanya, tara, ted, teresa, terry, tessa, theo, theresa, thomas, tim, tina,
    toby, todd, tom, tomas, tommy, tony, tracy, ursula, valentina, valerie, vanessa, vera, veronica, victor,
    victoria, viktor, vincent, walter, wanda, wendy, wei, will, william, xavier, yara, yasmin, yuki, yusuf,
    zach, zara, zoe
""")
CHECKS = Lexicon("""
    am i right, i m right, am i correct, am i wrong, am i mistaken, am i missing, correct, correctly, is it true,
    right that, wrong that, spell, spelled, pronounce, conjugate, understand, understood, is my understanding,
    is my sentence, is my answer, is my grammar, is my translation, my code, my loop, sound right, habe ich recht,
    liege ich richtig, richtig, ai je raison, me trompe, bien écrit, correctement, tengo razón, me equivoco,
    bien escrito, correcto, सही, 对吗, 对不对, 这样写, ho ragione, tenho razão, heb ik gelijk, прав, mam rację,
    haklı, 合っていますか, 맞지
""")
"""The speaker wants something checked that is said in the same breath."""
MAY = Lexicon("""
    may i, may my, may we, am i allowed, are we allowed, is my son allowed, allowed, am i supposed, can i, can my,
    can we, i can, i may, i m allowed, at most, maximum, limit, quota, allowance, darf ich, dürfen wir, erlaubt,
    puis je, ai je le droit, je peux, permis, puedo, podemos, permitido, सकता हूँ, सकती हूँ, 我可以, 可以, 能喝,
    posso, mag ik, можно, mogę, いいですか
""")
LIMIT_ON_ME = Lexicon("""
    may i, may my, may we, am i allowed, are we allowed, i am allowed, i m allowed, i may, i can spend, i can lift,
    darf ich, dürfen wir, mir erlaubt, puis je, me sont permis, ai je le droit, me permiten, puedo llevar, puedo tomar,
    mag ik, posso portare, posso levar, सकता हूँ, सकती हूँ, 我可以, 我一天可以
""")
QUANTITY = Lexicon("""
    how many, how much, how long, how far, how often, how fast, how late, how early, how high, the most, the maximum,
    the largest, the latest, the earliest, the longest, wie viel, wie viele, wie lange, wie weit, wie oft, combien,
    cuánto, cuánta, cuántos, cuántas, कितने, कितनी, कितना, 几, 多少, quanti, quanto, quantos, hoeveel, сколько, ilu,
    ile, kaç, 何人, いくつ
""")
ATTRIBUTE = Lexicon("""
    number, size, code, fee, fees, price, cost, costs, rent, rate, limit, length, width, height, weight, depth,
    capacity, volume, budget, quota, deposit, balance, amount, dose, dosage, target, plate, address, port, extension,
    reference, version, duration, notice, discount, premium, excess, toll, how long is, how big is, how wide is,
    how tall is, how much is, how much does, how many, nummer, miete, kostet, gebühr, preis, länge, kennzeichen,
    numéro, loyer, coûte, taille, longueur, número, alquiler, cuesta, mide, नंबर, किराया, शुल्क, 多少钱, 租金, 几号,
    多大, 多长
""")
ATTRIBUTE_WORDS = Lexicon("""
    number, numbers, size, time, name, names, day, date, month, year, kind, type, sort, colour, color, called, many,
    much, long, old, often, far, wide, high, big, tall, get, got, go, goes, went, going, make, made, take, took,
    have, having, give, gave, thing, things, way, may, can, could, should, now, still, again, ever, last, next,
    currently, recently, also, think, feel, say, said, tell, told, know, like, happen, happened, one, new, use,
    used, am, been, being, another, other, some, any, about, during, after, before, into, out, over, not, no, but,
    describe, plan, planning, start, started, begin, begins, end, ends, place, reason, part, want
""")
"""What a question asks for, or how it asks; never what it is about."""
PUBLIC = Lexicon("""
    america, american, africa, asia, australia, austria, austrian, belgium, berlin, boston, brazil, britain, british,
    canada, chicago, china, chinese, denmark, dublin, egypt, england, english, eu, europe, european, finland, france,
    french, german, germany, greece, greek, hungary, iceland, india, indian, ireland, irish, italian, italy, japan,
    japanese, jupiter, london, madrid, mars, mexico, moon, moscow, netherlands, new york, norway, oxford, paris,
    poland, polish, portugal, roman, rome, russia, russian, saturn, scotland, spain, spanish, sweden, swedish,
    switzerland, swiss, sydney, texas, tokyo, turkey, turkish, uk, united states, us, usa, venice, vienna, zurich,
    amazon, android, apple, aws, boeing, facebook, google, github, instagram, iphone, java, linux, microsoft, mysql,
    netflix, nginx, nobel, olympic, olympics, postgres, python, spotify, tesla, twitter, wikipedia, windows, youtube,
    cathedral, palace, tower, bridge, stadium, museum, lake, mount, river, airport, planet, ocean, desert, motorway,
    average, standard, typical, human, humans, law
""")
"""Places, makers and works everybody knows, and the words that come with them: no private thing is meant."""
DEFINITE = Lexicon("the, der, das, le, la, el, los, las, het, de")
OWN_STATE = Lexicon("""
    am i, do i, did i, have i, has my, have my, was i, were we, is my, are my, was my, were my, does my, do my, did my,
    can i, can my, may i, may my, should i, bin ich, habe ich, ist mein, ist meine, sind meine, war ich, darf ich,
    kann ich, muss ich, esse ich, vertrage ich, suis je, ai je, est ce que je, est ce que j, est ce que ma,
    est ce que mon, mon, soy, estoy, tengo, he, mi, puedo, क्या मैं, क्या मैंने, क्या मेरा, क्या मेरी, क्या मेरे,
    क्या मुझे, sono, ho, posso, il mio, eu sou, já, o meu, ben ik, heb ik, is mijn, mag ik, я, мой, czy,
""")
"""How a yes/no question about the speaker begins."""
YES_NO = Lexicon("did, do, does, is, are, was, were, can, could, has, have, will, would, should, am")
GENERIC_YOU = Lexicon("you, your, people, one, someone, humans")
SMALL_TALK = Lexicon("""
    hi, hello, hey, thanks, thank you, ok, okay, yes, no, bye, good morning, good night, continue, go on, test,
    sure, hallo, danke, weiter, bonjour, merci, hola, gracias, sigue, नमस्ते, धन्यवाद, 你好, 谢谢, 继续, こんにちは, ciao,
    olá, привет, merhaba, cześć
""")
