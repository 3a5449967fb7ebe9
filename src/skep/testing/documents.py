"""Science metadata and resource maps as nodes of DataONE hold them, made to order."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

EML_21, EML_22 = "eml://ecoinformatics.org/eml-2.1.1", "https://eml.ecoinformatics.org/eml-2.2.0"
ISO, DC = "http://www.isotc211.org/2005/gmd", "http://www.openarchives.org/OAI/2.0/oai_dc/"
ORE = "http://www.openarchives.org/ore/terms"


def eml(title: str, *, namespace: str = EML_21, about: str = "", tables: int = 1, more: str = "") -> bytes:
    """`more` is put into the dataset as it is; each table describes twenty columns."""
    columns = "".join(
        f"<attribute><attributeName>column_{n}</attributeName><attributeLabel>Column {n}</attributeLabel>"
        f"<attributeDefinition>Measured value number {n}</attributeDefinition><measurementScale><ratio><unit>"
        "<standardUnit>meter</standardUnit></unit></ratio></measurementScale></attribute>"
        for n in range(20)
    )
    table = f"<dataTable><entityName>t</entityName><attributeList>{columns}</attributeList></dataTable>"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<eml:eml xmlns:eml={quoteattr(namespace)} packageId="x" system="s"><dataset>
<title>{escape(title)}</title>
<creator><individualName><givenName>Ada</givenName><givenName>B.</givenName><surName>Lovelace</surName></individualName>
<organizationName>Analytical Engines</organizationName></creator>
<creator><organizationName>Royal Society</organizationName></creator>
<pubDate>2011-05</pubDate>
<abstract><para>{escape(about or title)}</para><para>Second <emphasis>paragraph</emphasis>.</para></abstract>
<keywordSet><keyword>glacier</keyword><keyword>ice core</keyword></keywordSet>
<coverage>
<geographicCoverage><geographicDescription>Tarfala valley</geographicDescription><boundingCoordinates>
<westBoundingCoordinate>18.1</westBoundingCoordinate><eastBoundingCoordinate>18.9</eastBoundingCoordinate>
<northBoundingCoordinate>68.2</northBoundingCoordinate><southBoundingCoordinate>67.5</southBoundingCoordinate>
</boundingCoordinates></geographicCoverage>
<temporalCoverage><rangeOfDates><beginDate><calendarDate>1999</calendarDate></beginDate>
<endDate><calendarDate>2003-07-14</calendarDate></endDate></rangeOfDates></temporalCoverage>
<taxonomicCoverage><taxonomicClassification><taxonRankName>Genus</taxonRankName><taxonRankValue>Dryas</taxonRankValue>
<taxonomicClassification><taxonRankName>Species</taxonRankName><taxonRankValue>octopetala</taxonRankValue>
</taxonomicClassification></taxonomicClassification></taxonomicCoverage>
</coverage>
<contact><organizationName>Field Station</organizationName></contact>
<project><title>Cold Places</title><funding><para>Grant 7</para></funding></project>
{more}{table * tables}
</dataset></eml:eml>""".encode()


def iso(title: str, *, box: Mapping[str, object] | None = None, more: str = "") -> bytes:
    """`box` replaces sides of the bounding box."""
    sides = {"westBoundLongitude": 5, "eastBoundLongitude": 6.5, "southBoundLatitude": 50, "northBoundLatitude": 51}
    decimals = "".join(
        f"<gmd:{side}><gco:Decimal>{value}</gco:Decimal></gmd:{side}>"
        for side, value in {**sides, **(box or {})}.items()
    )

    def text(name: str, value: str) -> str:
        return f"<gmd:{name}><gco:CharacterString>{escape(value)}</gco:CharacterString></gmd:{name}>"

    def date(day: str, kind: str) -> str:
        return (
            f"<gmd:date><gmd:CI_Date><gmd:date><gco:Date>{day}</gco:Date></gmd:date><gmd:dateType>"
            f'<gmd:CI_DateTypeCode codeListValue="{kind}">{kind}</gmd:CI_DateTypeCode>'
            "</gmd:dateType></gmd:CI_Date></gmd:date>"
        )

    maker = f"""<gmd:citedResponsibleParty><gmd:CI_ResponsibleParty>{text("individualName", "Alfred Wegener")}
{text("organisationName", "AWI")}<gmd:role><gmd:CI_RoleCode codeListValue="author"/></gmd:role>
</gmd:CI_ResponsibleParty></gmd:citedResponsibleParty>"""
    return f"""<gmd:MD_Metadata xmlns:gmd="http://www.isotc211.org/2005/gmd" xmlns:gco="http://www.isotc211.org/2005/gco"
 xmlns:gml="http://www.opengis.net/gml/3.2">
<gmd:contact><gmd:CI_ResponsibleParty>{text("organisationName", "Data Centre")}</gmd:CI_ResponsibleParty></gmd:contact>
<gmd:identificationInfo><gmd:MD_DataIdentification><gmd:citation><gmd:CI_Citation>{text("title", title)}
{date("2009-02-01", "creation")}{date("2010-03-04", "publication")}{maker}</gmd:CI_Citation></gmd:citation>
{text("abstract", "About " + title)}
<gmd:descriptiveKeywords><gmd:MD_Keywords>{text("keyword", "drift")}{text("keyword", "shelf")}</gmd:MD_Keywords>
</gmd:descriptiveKeywords>
<gmd:extent><gmd:EX_Extent>{text("description", "North Sea")}
<gmd:geographicElement><gmd:EX_GeographicBoundingBox>{decimals}</gmd:EX_GeographicBoundingBox></gmd:geographicElement>
<gmd:temporalElement><gmd:EX_TemporalExtent><gmd:extent><gml:TimePeriod><gml:beginPosition>2001-01-01T00:00:00
</gml:beginPosition><gml:endPosition indeterminatePosition="now"/></gml:TimePeriod></gmd:extent></gmd:EX_TemporalExtent>
</gmd:temporalElement></gmd:EX_Extent></gmd:extent>{more}
</gmd:MD_DataIdentification></gmd:identificationInfo></gmd:MD_Metadata>""".encode()


def dc(title: str, *, more: str = "") -> bytes:
    return f"""<oai_dc:dc xmlns:oai_dc="{DC}" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:dcterms="http://purl.org/dc/terms/"><dc:title>{escape(title)}</dc:title><dc:creator>Humboldt, A. v.</dc:creator>
<dc:subject>plants</dc:subject><dc:description>About {escape(title)}</dc:description><dc:date>1807-06-05</dc:date>
<dc:publisher>Cotta</dc:publisher><dc:coverage>Chimborazo</dc:coverage>
<dcterms:spatial>northlimit=-1.4; southlimit=-1.5; eastlimit=-78.7; westlimit=-78.9</dcterms:spatial>
<dcterms:temporal>start=1799-06-05; end=1804-08-03</dcterms:temporal>{more}</oai_dc:dc>""".encode()


def resource_map(pid: str, documents: Mapping[str, Sequence[str]], *, host: str = "https://cn.example.org") -> bytes:
    """A package of metadata and the data that each of it documents."""
    ore, cito = "http://www.openarchives.org/ore/terms/", "http://purl.org/spar/cito/"

    def uri(one: str) -> str:
        return quoteattr(f"{host}/cn/v2/resolve/{quote(one, safe='')}")

    def node(one: str, body: str) -> str:
        return (
            f"<rdf:Description rdf:about={uri(one)}><dcterms:identifier>{escape(one)}</dcterms:identifier>"
            f"{body}</rdf:Description>\n"
        )

    about = uri(pid)
    whole = f"{about[:-1]}#aggregation{about[-1]}"
    members = list(dict.fromkeys(one for meta, data in documents.items() for one in (meta, *data)))
    nodes = [node(pid, f"<ore:describes rdf:resource={whole}/>")]
    nodes.append(
        f"<rdf:Description rdf:about={whole}><ore:isDescribedBy rdf:resource={about}/>"
        + "".join(f"<ore:aggregates rdf:resource={uri(one)}/>" for one in members)
        + "</rdf:Description>\n"
    )
    for meta, data in documents.items():
        nodes.append(node(meta, "".join(f"<cito:documents rdf:resource={uri(one)}/>" for one in data)))
        nodes += [node(one, f"<cito:isDocumentedBy rdf:resource={uri(meta)}/>") for one in data if one != meta]
    return (
        f'<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ore="{ore}"'
        f' xmlns:cito="{cito}" xmlns:dcterms="http://purl.org/dc/terms/">\n{"".join(nodes)}</rdf:RDF>'
    ).encode()
