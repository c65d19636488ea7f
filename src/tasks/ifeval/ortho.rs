//! What Punkt knows of English words, as trained on the Wall Street Journal: abbreviations, words that often
//! begin sentences, and of the more common words how they are written.

use std::collections::HashSet;
use std::sync::LazyLock;

/// How a word was seen written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ortho {
    /// In lower case somewhere.
    pub lower: bool,
    /// With a capital within a sentence.
    pub upper_within: bool,
}

/// Without their last full stop.
const ABBREVIATIONS: &str = "\
    a.a a.c a.d a.g a.h a.m a.m.e a.s a.t adm ala ariz aug ave b.f b.v bros c c.i.t c.o.m.b c.v \
    calif chg cie co col colo conn corp cos ct d d.c d.h d.w dec dr e e.f e.h e.l e.m f f.g f.j \
    feb fla fri ft g g.d g.f g.k ga gen h h.c h.f h.m i.m.s ill inc j.b j.c j.j j.k j.p j.r jan \
    jr k kan ky l l.a l.f l.p lt ltd m m.b.a m.d.c m.j maj messrs mg mich minn mr mrs ms n n.c \
    n.d n.h n.j n.m n.v n.y nev nov oct ok okla ore p p.a.m p.m pa ph.d prof r r.a r.h r.i r.j \
    r.k r.t rep reps s s.a s.a.y s.c s.g s.p.a s.s sen sep sept sr st sw t t.j tenn tues u.k u.n \
    u.s u.s.a u.s.s.r v va vs vt w w.c w.r w.va w.w wash wed wis yr \
    ";

/// Words that often begin a sentence.
const STARTERS: &str = "\
    according although among both but despite even he however i if in indeed instead it many \
    meanwhile moreover most nevertheless nonetheless nor sales separately similarly since so \
    some the there these they this though thus under when while yet \
    ";

/// Words that go on after a number and a full stop.
const AFTER_NUMBERS: &str = "\
    abreast aes business cbot colgate commodities cooper corrections credit dividend financing \
    genentech henley insider international leisure letters notable pay-fone pegasus pepper \
    review rj wedgestone who zimmer \
    ";

/// Initials, and names that go on after them.
const AFTER_INITIALS: [(&str, &str); 11] = [
    ("b", "edelman"),
    ("b", "levine"),
    ("b", "smith"),
    ("b", "stewart"),
    ("b", "wigton"),
    ("i", "magnin"),
    ("i", "toussie"),
    ("j", "aron"),
    ("j", "fialka"),
    ("j", "walter"),
    ("o", "ludcke"),
];

/// Common words that take a capital only where a sentence begins.
const LOWER: &str = "\
    abolished abolition absolutely absurd accessibility accountability achievements achieving \
    acknowledge actions active ad adding address addressing adjust adjusting adjustment \
    advantage adventure advice advocacy afternoon agreed aim album allow allows along always \
    amount analysis ancient angry animal animated annihilation announced antics appealing \
    appendix application applications apply approach arena arguing aria arrange arrangement \
    arrival arrive article artist ask assisted associate attend attention attitude audience \
    audiences author authorities availability available avoiding award-winning awards awareness \
    babies bachelor balanced balancing balloon balls barriers baseball basic basics battery \
    became become bed beef begin behavior behind behold being believe better between beyond bias \
    billboard biology birds birth bit blend body bold bomb bonding bonus boot bounce box boy \
    boys brainstorming brand breach break break-even breaking bright bronze build built bunch \
    burning bus calculate call calm came camera camping candidate capture captured cast cause \
    cease celebrate certainly chair challenge challenges channels chaos character characters \
    charm charts check cheer cheese choice choices choose choosing chorus chose chronicle \
    cinematic circulation circumstances circus claim clarity clash classes climate climbing \
    closing clowning co-founder coherent cold collaborate collaborated collaboration collections \
    colorful colors combat combining comedy comfort comfortable comic commitment committed \
    communicate compare compensation competing competitive completed complexity components \
    composition compromise concentrating conclude conclusion conditions conduct conducted \
    conducting conductor conflict conflicts confused confusing connecting connection connections \
    consider considerations consistency consistent consists constructive contact contain \
    contemporary content context continuous contrary contribute contributing convert cooking \
    cool coordination core corporation cost counts craft cream create created creating creation \
    creatures crickets critique crossing crusade crystal cultural cure curiosity curious \
    currently customer cycle damn daredevil dark database date dating dawn decision-making \
    decisions declared deep deeper define defined definition delicious delight delivered demands \
    demonstrates demonstration dependency deployment describe description designed destroy \
    detention determination determine determined develop developed developer developing diaper \
    diet difference differences different difficult direction dirty disability disappointing \
    disappointment disaster discipline discover discovered discovery discuss discussion disorder \
    display distance distinct distinguished distractions dive diverse divided diving doctor \
    documentary does dogs done door double drain drama durable duration dynamic eager early \
    easy-to-use echoes echoing edge editing edition effective effectively effects efficiency egg \
    element elements embrace embracing emotional emotions emphasizing empire employee employers \
    encased encourage encourages encouraging endless enduring engage engagement engaging \
    engineer engineers enhance enhanced enhancing enjoy enough ensure ensuring enter entertain \
    entity environment environments episode equality equation equipped era especially essay \
    essential establish estimated ethic ethical evaluate evaluating evaluation event ever \
    evolved exactly examine examples excellence excellent exception exceptional exceptions \
    excited exclusive exercise expanded experience experienced experiences experiment expert \
    expertise explain explanation explore exploring exposure expression expressions extravagant \
    eyes faced facing factor faith fake falling fame familiarity families fans fast-paced faster \
    fault favorite fear feared feature features feedback feeling feet fellow felt fetch fighter \
    fighters figure file files filled films final finale finally findings fingers fit flavors \
    flexibility flight floating flowers fly focuses focusing follow follow-up followed following \
    foolish forces forever forget formally format forward fought foundations founded founder \
    founders founding framework franchise frequent friend fringe fundamentals furthermore gather \
    gauge gave generations gift girl girls glamorous global glory goals goes going gospel \
    governments governor grab grabbing graduated gravity guess guest guided guiding guy hair \
    handle happen happy headline healthy hear hearing heartbeat hearts helps her here hero \
    hiding highlight highly hike hiking hilarious him hiring historical hold hoping horseshoe \
    host hot hour hours hunting hurry idea identification identity illusion imagine implement \
    implementation implemented implementing implications importance important impression improve \
    improved improvement improving inches include including inclusion incorporate incorporating \
    increased incredible indeed independence independent individual individuals influence \
    initial initially initiatives innovation innovative inside insights install instead \
    integrated integration interact into introduced introducing invalid inventor invest \
    investigating isolation iss journey jumping junior juveniles kids kill kissing kit knowledge \
    known lab lack language languages largely last-minute lasts laundry lavender leaders \
    leadership learn led lessons letters leverage libraries lie lies lifetime liked links list \
    listen listening lists literature lived lives living locally located location locations \
    logical logo looking losing loud loved lunch luxury lyric madness magical maintain \
    maintaining manage manager marked marriage massive matching mathematics maximize mechanics \
    meetings member memorable mental mention methodology miles milestone mind mindful minimum \
    ministers missed mix mom moment moments monthly months moral moreover morning mother \
    motivated motivation multiply mysterious myth native nature necessary need needed needs \
    negative neighbors networks nights nominees non-profit nostalgia notable notably note novel \
    number objective objectives objects officer offset one-time ongoing opening operates \
    operators opportunities opportunity optimism organizations organizing original originality \
    originally overall overcome pack packed page paid pain pair pants parenting participant \
    participants participate participated partner passage passengers passion path patient per \
    perfect perform performance performed performer person personal phase phone phrases physical \
    piece pipeline pitch places planet platform play player playing please plot pointing points \
    poker political pop popularity port portfolio portrait position positive potential poverty \
    practical practice praise preparation prepare presence present presentation preserving \
    pressures pretty previous priced pride prince prior priorities private privy pro problem \
    process processing processor product productivity professionals professor profile program \
    programmers programming projected projections projects prominent prop proper proposed \
    proposition protecting proven provide provided provides psychological psychology publisher \
    pure put question questions races raider rain range rating reality rebellion received \
    receiving recent recipient recipients recognized recommend recommendation recommendations \
    recommended reduced reduction referendum referral reflect reflecting reflection regions \
    regular regularly rehabilitation relationship relationships relax relaxation relaxing \
    released relevant relief religious remain remaining remarks remember renowned rent replace \
    representation reputation requires researchers resilience resolution respect response \
    responsibilities restaurant restoration result results retention revenge reviews revise \
    revolutionary reward rhythm riding right rigorous ripe rising rituals rob roll romance round \
    routine rubric rush sadness safe salon same sample sand sat satisfaction satisfactory saw \
    scale scenarios scene schedule score screening scripting se season secrets section secure \
    select self-control selling send sense senses sentence seriously served session sessions \
    setting shape shapes shared sharing shoes shore sight significance significant silk similar \
    similarly simple simply sincerely single sink sit situations size skill skilled skills \
    slipping smooth sneakers sneaking snow so soap societal solicitor solid solution solutions \
    solving someday sometimes songs soon sorry soul sounds spacious specialization specialized \
    species specific specifically specifications specify speech speed speeding spend spirit \
    spoiler spread stand stands stardom started starting startled statement statements stem step \
    stick stigma still storage stories strawberry streams strength strengths stress stretch \
    string structural structure structured structures struggling stuck studied studio style \
    subscription substitute subtracting success successful succession such suddenly suggest \
    suggestions supporting supportive surround surrounded sustainable syndicate synthetic \
    tactics tails tale talent talented tall tango teach teaching team teams technological teen \
    teens ten testing text thank thanks theft them themes theory therefore things think thinking \
    though thoughts threats through throughout throw throwing thus timing tiny tipping tips \
    tired title together tomatoes tomorrow tone tonic took topics towards towers township tracks \
    tradition traditional trail train transcripts treat treatment treatments treats trees tricks \
    true truth try trying turning turns twist type ultimate ultimately understand unfortunately \
    unique unity unjust unleashing unlike unsatisfactory upon us user uses using utilize \
    valuable values variety various vary vault ve versatility version very vibrant vision visual \
    vulnerable wacky wait walk wanted warm watching waters waves weaknesses weapon wears weather \
    web weekend weeks weight welcome went were whether which whole wide widely willingness win \
    wisdom wisely within without wonders words worked working workplace wrath writers writing \
    written yes yet youngest your yourself youth zone zoo \
    ";

/// Common words that take a capital within sentences too, in names and titles.
const BOTH: &str = "\
    a ability about according act action activities activity add additional advanced after \
    airport all also am amendment an and another answer any appeal are around art arts as \
    association at avoid award b back bad battle bay be beach because before benefits best big \
    bill bob book books both bottom brief brothers building business but by c can cancer case \
    catch center central certified change chief children china city classic clearly club coast \
    code college come common communities community company computer conference could count \
    county culture cup d data day days department departure design despite development did \
    dinner division do dog don dream during each earth east economic education end energy \
    engineering entertainment environmental even evening events every expected falls family feel \
    festival field film find first focus food for friends from fun future game general get give \
    go god golden gone good got grace gradually grand great group growth guide had hall hardware \
    has have having he head health heard heart help hey high his history hope house how however \
    ideas identify if impact in industry information international introduction is island issues \
    it its job join journal just juvenile keep key king know last league learning leave leaving \
    legal let letter life like line little local look los lost love low machine made magic make \
    making management many march mark market master may me media meet memorial model month more \
    most mountains movie museum music musical my name nation national networking never new next \
    night no north not now of often on once one open or order organization other our out over \
    palace park party pay peace people picture plan players plus point power premier president \
    prime prize professional project proposal public quality read reading real records red \
    renaissance research resources return revenue review revolution road role rose s safety say \
    school science second secret seek series service set share she should show since sleep \
    sleeping slide social society software some song south special star start state states stay \
    stop strategy street strong studies subject summary sun support sure take target technical \
    technology than that the their then there these they this three time times to today top \
    total tour tower training travel two under understanding united university up use users \
    visit war wars was watch water way we well west western what when where while white who why \
    will with work works world would write year years you \
    ";

type Words = LazyLock<HashSet<&'static str>>;

static IN_ABBREVIATIONS: Words = LazyLock::new(|| ABBREVIATIONS.split_whitespace().collect());
static IN_STARTERS: Words = LazyLock::new(|| STARTERS.split_whitespace().collect());
static IN_LOWER: Words = LazyLock::new(|| LOWER.split_whitespace().collect());
static IN_BOTH: Words = LazyLock::new(|| BOTH.split_whitespace().collect());

/// Whether a word in lower case, without its last full stop, is an abbreviation.
pub fn is_abbreviation(word: &str) -> bool {
    IN_ABBREVIATIONS.contains(word)
}

/// Whether a word in lower case often begins a sentence.
pub fn is_starter(word: &str) -> bool {
    IN_STARTERS.contains(word)
}

/// Whether no sentence ends between two types, though there is a full stop.
pub fn belong_together(word: &str, next: &str) -> bool {
    let number = word == super::sentences::NUMBER;
    (number && AFTER_NUMBERS.split_whitespace().any(|known| known == next))
        || AFTER_INITIALS.contains(&(word, next))
}

/// How a word was seen written, given in lower case.
pub fn of(word: &str) -> Ortho {
    let upper_within = IN_BOTH.contains(word);
    Ortho { lower: upper_within || IN_LOWER.contains(word), upper_within }
}
