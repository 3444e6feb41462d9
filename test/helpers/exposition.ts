/** One value of a scrape. */
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export interface Scrape {
  samples: Sample[];
  types: Map<string, string>;
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/y;

/**
 * Reads the text format and refuses whatever Prometheus's own tools would complain about: values
 * without a type, metrics in two places, samples twice, counters that are not named so, histograms
 * that do not add up.
 */
export function parseExposition(text: string): Scrape {
  if (!text.endsWith('\n')) throw new Error('the last line does not end');
  const types = new Map<string, string>();
  const helped = new Set<string>();
  const samples: Sample[] = [];
  const seen = new Set<string>();
  let family = '';
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const comment = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line);
    if (comment !== null) {
      const [, kind, name = '', rest = ''] = comment;
      if (!NAME.test(name)) throw new Error(`not a name: ${line}`);
      const known = kind === 'HELP' ? helped.has(name) : types.has(name);
      if (known) throw new Error(`${name} is declared twice`);
      if (kind === 'HELP') helped.add(name);
      else {
        if (!/^(counter|gauge|histogram|summary)$/.test(rest)) throw new Error(`type? ${line}`);
        if (rest === 'counter' && !name.endsWith('_total')) throw new Error(`counter ${name}`);
        types.set(name, rest);
        family = name;
      }
      continue;
    }
    const sample = readSample(line);
    if (familyOf(sample.name, types) !== family) throw new Error(`out of place: ${line}`);
    if (!helped.has(family)) throw new Error(`no help for ${family}`);
    const key = `${sample.name} ${JSON.stringify(Object.entries(sample.labels).sort())}`;
    if (seen.has(key)) throw new Error(`twice: ${line}`);
    seen.add(key);
    if (types.get(family) === 'counter' && !(sample.value >= 0)) throw new Error(line);
    samples.push(sample);
  }
  checkHistograms(samples, types);
  return { samples, types };
}

function readSample(line: string): Sample {
  const found = SAMPLE.exec(line);
  if (found === null) throw new Error(`not a sample: ${line}`);
  const [, name = '', inside = '', number = ''] = found;
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < inside.length) {
    const at = LABEL.lastIndex;
    const label = LABEL.exec(inside);
    if (label === null) throw new Error(`labels, from ${at}: ${line}`);
    if (Object.hasOwn(labels, label[1]!)) throw new Error(`label twice: ${line}`);
    labels[label[1]!] = label[2]!;
  }
  if (!/^(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]Inf|Nan|NaN)$/i.test(number)) {
    throw new Error(`not a number: ${line}`);
  }
  return { name, labels, value: Number(number.replace('Inf', 'Infinity').replace('Nan', 'NaN')) };
}

function familyOf(name: string, types: Map<string, string>): string {
  if (types.has(name)) return name;
  const base = name.replace(/_(?:bucket|sum|count)$/, '');
  return types.get(base) === 'histogram' || types.get(base) === 'summary' ? base : name;
}

function checkHistograms(samples: Sample[], types: Map<string, string>): void {
  const last = new Map<string, number>();
  const counts = new Map<string, number>();
  const keyOf = ({ name, labels }: Sample, suffix: string): string => {
    const others = Object.entries(labels).filter(([label]) => label !== 'le');
    return `${name.slice(0, -suffix.length)} ${JSON.stringify(others.sort())}`;
  };
  for (const sample of samples) {
    if (types.get(familyOf(sample.name, types)) !== 'histogram') continue;
    if (sample.name.endsWith('_bucket')) {
      const key = keyOf(sample, '_bucket');
      if (sample.value < (last.get(key) ?? 0)) throw new Error(`${key} shrinks`);
      last.set(key, sample.value);
      if (sample.labels['le'] === '+Inf') counts.set(key, sample.value);
    }
  }
  for (const sample of samples) {
    if (types.get(familyOf(sample.name, types)) !== 'histogram') continue;
    if (!sample.name.endsWith('_count')) continue;
    const key = keyOf(sample, '_count');
    if (counts.get(key) !== sample.value) throw new Error(`${key} does not add up`);
  }
}

/** The value of one sample, found by name and some of its labels; several are added. */
export function valueOf(
  { samples }: Scrape,
  name: string,
  labels: Record<string, string> = {},
): number | null {
  const found = samples.filter(
    (one) =>
      one.name === name && Object.entries(labels).every(([key, is]) => one.labels[key] === is),
  );
  return found.length === 0 ? null : found.reduce((sum, { value }) => sum + value, 0);
}

export async function scrape(opsUrl: string): Promise<Scrape> {
  const response = await fetch(`${opsUrl}/metrics`);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
  return parseExposition(text);
}
