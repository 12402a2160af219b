"""The words of the generated corpus as text tables, each in order of frequency; `lexicon` parses them.

Nouns     `German english`, separated by `;`. `Junge/Jungen` gives the form of accusative and dative.
Verbs     `infinitive participle english [past]`. `auf-heben` is separable; `sehen:sieh` gives the stem of
          the second and third person; `*` before the participle asks for `sein`. In English `pick+up` has
          a particle that follows the object, `look_for` a preposition that stays with the verb; the past
          is given where adding `-ed` would be wrong.
Others    `german english`, with `_` for a space.

`big|large` stands for two entries. Words with several translations, in either direction, are what keeps the
corpus from being a cipher: which of them a sentence has cannot be known from its translation.
"""

THINGS_MASCULINE = """
Tisch table; Stuhl chair; Schlüssel key; Koffer suitcase|trunk; Brief letter|note; Wagen wagon|cart;
Schrank cupboard|wardrobe; Ball ball; Teppich carpet|rug; Topf pot|saucepan; Teller plate; Löffel spoon;
Ring ring; Mantel coat; Hut hat; Spiegel mirror; Computer computer; Schuh shoe; Korb basket; Stift pen|pencil;
Apfel apple; Kuchen cake; Rucksack backpack|rucksack; Schirm umbrella; Baum tree; Hammer hammer; Ofen oven;
Kalender calendar; Vertrag contract|agreement; Roman novel|book; Film film|movie; Sessel armchair; Rock skirt;
Gürtel belt; Schal scarf; Handschuh glove; Knopf button; Bleistift pencil; Drucker printer;
Fernseher television; Käse cheese; Salat salad; Zug train; Bus bus; Motor engine; Zaun fence; Turm tower;
Vorhang curtain; Eimer bucket; Besen broom; Kessel kettle; Krug jug; Becher mug; Kamm comb; Pass passport;
Artikel article; Aufsatz essay; Plan plan; Sack sack; Beutel pouch; Nagel nail; Hocker stool;
Pinsel paintbrush; Stempel stamp; Roller scooter; Schlitten sledge; Brunnen fountain; Kompass compass;
Globus globe; Anker anchor; Würfel cube; Drachen kite; Bohrer drill; Magnet magnet; Pokal trophy;
Kranz wreath; Kürbis pumpkin
"""

THINGS_FEMININE = """
Lampe lamp|light; Tasche bag|handbag; Uhr clock|watch; Flasche bottle; Tür door; Tasse cup; Karte map|card;
Decke blanket|cover; Kiste crate|box; Jacke jacket; Vase vase; Gabel fork; Schüssel bowl;
Kette chain|necklace; Bank bench; Kerze candle; Zeitung newspaper|paper; Blume flower; Kamera camera;
Maschine machine; Gitarre guitar; Rechnung bill|invoice; Liste list; Brücke bridge; Pfanne pan; Mauer wall;
Leiter ladder; Puppe doll; Suppe soup; Münze coin; Schachtel box; Mütze cap; Bluse blouse; Krawatte tie;
Matratze mattress; Zeitschrift magazine; Tafel blackboard; Säge saw; Schraube screw; Batterie battery;
Geige violin; Trommel drum; Flöte flute; Trompete trumpet; Maske mask; Fahne flag; Glocke bell; Statue statue;
Truhe chest; Kommode dresser; Schublade drawer; Tastatur keyboard; Torte tart; Wurst sausage; Tomate tomato;
Gurke cucumber; Zwiebel onion; Birne pear; Kirsche cherry; Zitrone lemon; Melone melon; Banane banana;
Rose rose; Tulpe tulip; Pflanze plant; Muschel shell; Feder feather; Nadel needle; Bürste brush;
Rakete rocket; Kutsche carriage; Schaufel shovel; Axt axe; Krone crown; Perle pearl; Medaille medal;
Akte file; Quittung receipt; Skizze sketch
"""

THINGS_NEUTER = """
Buch book; Bild picture|image; Auto car|automobile; Bett bed; Messer knife; Fenster window;
Fahrrad bicycle|bike; Geschenk present|gift; Sofa sofa|couch; Regal shelf; Kissen pillow|cushion; Hemd shirt;
Kleid dress|gown; Boot boat; Telefon telephone|phone; Tor gate|goal; Brot bread; Foto photo|photograph;
Paket parcel|package; Heft notebook|booklet; Glas glass; Radio radio; Klavier piano; Schiff ship|vessel;
Tuch cloth; Lied song; Gedicht poem; Dach roof; Rad wheel; Schild sign; Ticket ticket; Werkzeug tool;
Flugzeug airplane; Motorrad motorcycle; Mikrofon microphone; Gemälde painting; Wörterbuch dictionary;
Lexikon encyclopedia; Puzzle puzzle; Schloss lock; Seil rope; Netz net; Brett board; Beil hatchet;
Lineal ruler; Mikroskop microscope; Fernrohr telescope; Thermometer thermometer; Ei egg; Brötchen roll;
Steak steak; Sandwich sandwich; Armband bracelet; Siegel seal; Wappen crest; Plakat poster; Zelt tent;
Kanu canoe; Floß raft; Segel sail; Ruder oar; Karussell carousel; Modell model; Denkmal monument;
Skelett skeleton; Saxofon saxophone; Tablett tray; Fass barrel; Handtuch towel; Band ribbon; Kostüm costume;
Diplom diploma; Rezept recipe; Tagebuch diary; Dokument document
"""

PERSONS_MASCULINE = """
Mann man|husband; Vater father|dad; Lehrer teacher; Bruder brother; Junge/Jungen boy; Arzt doctor|physician;
Onkel uncle; Sohn son; Nachbar/Nachbarn neighbor; Student/Studenten student; König king; Bauer/Bauern farmer;
Bäcker baker; Koch cook|chef; Maler painter|artist; Kunde/Kunden customer|client; Gast guest;
Großvater grandfather; Richter judge; Gärtner gardener; Polizist/Polizisten policeman|officer; Fahrer driver;
Händler trader|dealer; Dichter poet; Soldat/Soldaten soldier; Schneider tailor; Prinz/Prinzen prince;
Mönch monk; Pirat/Piraten pirate; Zauberer wizard
"""

PERSONS_FEMININE = """
Frau woman|wife; Mutter mother|mom; Schwester sister; Tochter daughter; Tante aunt;
Großmutter grandmother|grandma; Königin queen; Dame lady|woman; Sängerin singer|vocalist;
Professorin professor; Anwältin lawyer|attorney; Kellnerin waitress; Krankenschwester nurse; Pilotin pilot;
Journalistin journalist; Tänzerin dancer; Architektin architect; Prinzessin princess; Nichte niece;
Schauspielerin actress; Braut bride; Hexe witch; Nonne nun; Witwe widow
"""

PERSONS_NEUTER = "Kind child|kid; Mädchen girl|lass; Baby baby|infant"

NAMES = """
Anna Peter Maria Paul Eva Max Julia Felix Lena Tom Clara Emil Ida Hugo Nora Otto Ella Karl Lisa Jan Sophie Moritz
"""

PLACES = {
    ("in", "in"): """
        m Garten garden; f Küche kitchen; n Haus house|building; f Stadt city|town; f Schule school;
        n Büro office|bureau; m Park park;
        n Zimmer room; m Keller basement|cellar; n Dorf village; m Wald forest|woods; n Museum museum; f Kirche church;
        m Laden shop|store; n Hotel hotel; f Werkstatt workshop; n Restaurant restaurant; m Hof courtyard|yard;
        f Garage garage;
        n Krankenhaus hospital; f Bibliothek library; n Theater theater; m Stall stable; f Fabrik factory;
        m Saal hall; f Hütte cabin|hut; n Kino cinema; f Burg castle; n Labor laboratory; m Zoo zoo; f Höhle cave;
        m Tempel temple; f Bäckerei bakery; n Kloster monastery; f Apotheke pharmacy; n Gefängnis prison""",
    ("auf", "on"): """
        f Straße street|road; f Insel island; m Balkon balcony; m Hügel hill; f Terrasse terrace; f Wiese meadow;
        m Platz square; n Feld field; m Parkplatz parking_lot; n Gleis track; f Bühne stage; f Treppe staircase""",
}

PREPOSITIONS = "neben next_to|beside; hinter behind|in_back_of; vor in_front_of|before; nahe near|close_to"

COMPOUND_MODIFIERS = """
Garten garden; Holz wood; Küchen kitchen; Leder leather; Metall metal; Sommer summer; Winter winter;
Schul school; Plastik plastic; Stein stone; Silber silver; Reise travel; Papier paper; Büro office|bureau;
Familien family; Hotel hotel; Gummi rubber; Kupfer copper; Museums museum; Weihnachts Christmas; Seiden silk;
Geburtstags birthday; Eisen iron; Oster Easter
"""

THING_ADJECTIVES = """
alt old; neu new; groß big|large; klein small|little; schön beautiful|nice; rot red; schwer heavy|weighty;
blau blue; grün green; schwarz black; weiß white; lang long; billig cheap|inexpensive; leer empty;
kaputt broken|damaged; braun brown; schmutzig dirty|filthy; rund round; gelb yellow; kurz short|brief;
warm warm; kalt cold; leicht light; wertvoll valuable|precious; breit wide|broad; schmal narrow; dick thick;
dünn thin|slim; nass wet; trocken dry; weich soft; hart hard; hell bright; voll full; grau gray;
seltsam strange|odd; merkwürdig strange; berühmt famous; hässlich ugly; modern modern; bunt colorful;
glatt smooth; scharf sharp; stabil sturdy; zerbrechlich fragile; praktisch practical; gefährlich dangerous;
einfach simple; selten rare; echt genuine; hübsch pretty; winzig tiny; riesig huge|enormous; staubig dusty;
rostig rusty; eckig angular; flach flat; krumm crooked; hohl hollow; elegant elegant; interessant interesting;
wichtig important; wunderbar wonderful|marvelous; kostbar precious; gewöhnlich ordinary
"""

PERSON_ADJECTIVES = """
jung young; alt old; müde tired; freundlich friendly|kind; klug clever|smart; glücklich happy|cheerful;
traurig sad|unhappy; reich rich|wealthy; arm poor; krank sick|ill; stolz proud; ruhig calm|quiet;
mutig brave|courageous; faul lazy; fleißig diligent|hard-working; höflich polite; nervös nervous;
gesund healthy; streng strict; lustig funny; neugierig curious; geduldig patient; berühmt famous;
schüchtern shy
"""

PLACE_ADJECTIVES = """
alt old; groß big|large; klein small|little; neu new; schön beautiful|nice; dunkl dark; leer empty;
still silent|quiet
"""

DEGREES = """
sehr very|really; überaus very; zu too; ziemlich quite|rather; wirklich really;
besonders particularly|especially; etwas somewhat|slightly; erstaunlich surprisingly
"""

ADVERBS_ANY_TIME = """
heute today; oft often|frequently; häufig often|frequently; manchmal sometimes|at_times;
gelegentlich occasionally|sometimes; wieder again|once_more; leider unfortunately|sadly;
endlich finally|at_last; vielleicht perhaps|maybe; möglicherweise perhaps|possibly;
plötzlich suddenly|all_of_a_sudden; abends in_the_evening; sonntags on_Sundays;
trotzdem nevertheless|all_the_same; vermutlich presumably|probably; montags on_Mondays; nachts at_night
"""

ADVERBS_OF_PERSONS = """
gern gladly; schnell quickly|fast; heimlich secretly|in_secret; allein alone; langsam slowly;
absichtlich on_purpose|intentionally; zufällig by_chance|accidentally
"""

ADVERBS_PAST = (
    "gestern yesterday; neulich recently|the_other_day; damals back_then; vorgestern the_day_before_yesterday"
)

ADVERBS_NOT_PAST = (
    "morgen tomorrow; bald soon|shortly; jetzt now|right_now; später later|later_on; übermorgen the_day_after_tomorrow"
)

TRANSITIVE = """
kaufen gekauft buy bought; erwerben:erwirb erworben purchase; erwerben:erwirb erworben buy bought;
suchen gesucht look_for; suchen gesucht search_for; sehen:sieh gesehen see saw; verkaufen verkauft sell sold;
finden gefunden find found; entdecken entdeckt discover; entdecken entdeckt find found;
brauchen gebraucht need; benötigen benötigt need; benötigen benötigt require; ab-holen abgeholt pick+up;
ab-holen abgeholt collect; reparieren repariert repair; reparieren repariert fix;
vergessen:vergiss vergessen forget forgot; reinigen gereinigt clean; säubern gesäubert clean;
verlieren verloren lose lost; mit-nehmen:nimm mitgenommen take+along took; holen geholt fetch;
holen geholt get got; an-sehen:sieh angesehen look_at; an-schauen angeschaut look_at;
an-schauen angeschaut watch; benutzen benutzt use; verwenden verwendet use; verwenden verwendet employ;
verstecken versteckt hide hid; verstecken versteckt conceal; tragen:träg getragen carry;
tragen:träg getragen wear wore; malen gemalt paint; weg-werfen:wirf weggeworfen throw+away threw;
öffnen geöffnet open; zeichnen gezeichnet draw drew; beschreiben beschrieben describe; prüfen geprüft check;
überprüfen überprüft check; überprüfen überprüft inspect; zurück-bringen zurückgebracht bring+back brought;
lieben geliebt love; waschen:wäsch gewaschen wash; bestellen bestellt order; bezahlen bezahlt pay_for paid;
ein-packen eingepackt pack; bewundern bewundert admire; berühren berührt touch;
stehlen:stiehl gestohlen steal stole; auf-hängen aufgehängt hang+up hung; retten gerettet rescue;
retten gerettet save; bauen gebaut build built; bauen gebaut construct; sammeln gesammelt collect;
weg-räumen weggeräumt put+away put; vermissen vermisst miss; hassen gehasst hate;
fotografieren fotografiert photograph; aus-leihen ausgeliehen borrow; bemerken bemerkt notice;
untersuchen untersucht examine; liefern geliefert deliver; mieten gemietet rent; an-bieten angeboten offer;
erkennen erkannt recognize; zerstören zerstört destroy; werfen:wirf geworfen throw threw; ziehen gezogen pull;
schieben geschoben push; aus-packen ausgepackt unpack unpacked; polieren poliert polish;
um-tauschen umgetauscht exchange; wiegen gewogen weigh; messen:miss gemessen measure;
schützen geschützt protect; beobachten beobachtet watch; verbrennen verbrannt burn;
vor-führen vorgeführt demonstrate; vergraben:vergräb vergraben bury; auf-bewahren aufbewahrt keep kept;
wählen gewählt choose chose; erwähnen erwähnt mention; aus-stellen ausgestellt exhibit;
ignorieren ignoriert ignore; besitzen besessen own; loben gelobt praise; um-drehen umgedreht turn+over;
teilen geteilt share; kontrollieren kontrolliert inspect; her-stellen hergestellt produce;
zurück-lassen:läss zurückgelassen leave+behind left; sortieren sortiert sort; verlangen verlangt demand;
transportieren transportiert transport
"""

DITRANSITIVE = """
geben:gib gegeben give gave; geben:gib gegeben hand; schenken geschenkt give gave; zeigen gezeigt show;
bringen gebracht bring brought; schicken geschickt send sent; senden gesendet send sent;
leihen geliehen lend lent; zurück-geben:gib zurückgegeben give+back gave;
empfehlen:empfiehl empfohlen recommend; versprechen:versprich versprochen promise; erklären erklärt explain;
vererben vererbt bequeath
"""

PERSON_INTRANSITIVE = """
lachen gelacht laugh; schlafen:schläf geschlafen sleep slept; warten gewartet wait; arbeiten gearbeitet work;
weinen geweint cry; weinen geweint weep wept; tanzen getanzt dance; singen gesungen sing sang;
auf-stehen *aufgestanden get+up got; kochen gekocht cook; ein-schlafen:schläf *eingeschlafen fall+asleep fell;
lächeln gelächelt smile; zu-hören zugehört listen; beten gebetet pray; auf-wachen *aufgewacht wake+up woke;
an-kommen *angekommen arrive; üben geübt practice; weg-laufen:läuf *weggelaufen run+away ran;
zögern gezögert hesitate; niesen geniest sneeze; um-kehren *umgekehrt turn+back; gähnen gegähnt yawn;
schimpfen geschimpft grumble
"""

REPORTING = """
sagen gesagt say said; glauben geglaubt believe; glauben geglaubt think thought; hoffen gehofft hope;
denken gedacht think thought; behaupten behauptet claim; behaupten behauptet assert;
schreiben geschrieben write wrote; vermuten vermutet suspect; vermuten vermutet presume;
träumen geträumt dream; an-nehmen:nimm angenommen assume; fürchten gefürchtet fear;
berichten berichtet report; fühlen gefühlt feel felt; verstehen verstanden understand understood;
bezweifeln bezweifelt doubt; beweisen bewiesen prove; ahnen geahnt sense; bestätigen bestätigt confirm;
ein-sehen:sieh eingesehen realize; leugnen geleugnet deny; bedauern bedauert regret regretted
"""

POSITION = """
stehen gestanden stand stood; stehen gestanden sit sat; liegen gelegen lie lay; liegen gelegen rest;
hängen gehangen hang hung; bleiben *geblieben stay
"""

THING_INTRANSITIVE = """
bröckeln gebröckelt crumble; glänzen geglänzt shine shone; um-fallen:fäll *umgefallen fall+over fell;
verschwinden *verschwunden disappear; funktionieren funktioniert function; leuchten geleuchtet glow;
auf-fallen:fäll *aufgefallen stand+out stood; wackeln gewackelt wobble; klappern geklappert rattle;
rosten gerostet rust; quietschen gequietscht squeak; riechen gerochen smell; knarren geknarrt creak;
auf-tauchen *aufgetaucht turn+up; herunter-fallen:fäll *heruntergefallen fall+down fell;
weg-rollen *weggerollt roll+away; vibrieren vibriert vibrate
"""

DATIVE = """
gehören gehört belong_to; gefallen:gefäll gefallen please; gefallen:gefäll gefallen delight;
helfen:hilf geholfen help; nützen genützt benefit; schaden geschadet harm; imponieren imponiert impress
"""

LINKING = "wirken gewirkt seem; aus-sehen:sieh ausgesehen look; bleiben *geblieben remain"

AUXILIARIES = """
werde wirst wird werden: will will will will; kann kannst kann können: can can can can;
soll sollst soll sollen: should should should should; darf darfst darf dürfen: may may may may
"""

AUXILIARIES_NEVER_NEGATED = """
werde wirst wird werden: am_going_to are_going_to is_going_to are_going_to;
kann kannst kann können: am_able_to are_able_to is_able_to are_able_to;
muss musst muss müssen: must must must must; muss musst muss müssen: have_to have_to has_to have_to
"""

AUXILIARIES_OF_PERSONS = """
will willst will wollen: want_to want_to wants_to want_to;
möchte möchtest möchte möchten: would_like_to would_like_to would_like_to would_like_to
"""

CONJUNCTIONS = """
weil because|since; da because|since; da as; wenn when; wenn if; obwohl although|though; obgleich although;
während while|whereas; bevor before; nachdem after; sobald as_soon_as|once; falls if
"""
