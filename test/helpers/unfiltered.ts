import type { Pool } from '#sql/db/transaction';

type Tagged = (strings: TemplateStringsArray, ...values: unknown[]) => unknown;

/**
 * The same pool with the tenant filters taken out of every query: `tenant_no = ?` is always true,
 * and what is asked for as (id, tenant) is found by its id. What still is not found, something
 * behind the queries kept back.
 */
export function unfiltered(pool: Pool): Pool {
  return without(pool);
}

function without<T extends object>(target: T): T {
  return new Proxy(target, {
    apply: (call, self, [first, ...values]: [unknown, ...unknown[]]): unknown =>
      Reflect.apply(call as unknown as Tagged, self, [
        isTemplate(first) ? stripped(first) : (first as TemplateStringsArray),
        ...values,
      ]),
    get: (from, name) => {
      const value: unknown = Reflect.get(from, name);
      if (name !== 'reserve') return value;
      return async () => without(await (value as Pool['reserve'])());
    },
  });
}

const isTemplate = (value: unknown): value is TemplateStringsArray =>
  Array.isArray(value) && 'raw' in value;

const known = new WeakMap<TemplateStringsArray, TemplateStringsArray>();

function stripped(strings: TemplateStringsArray): TemplateStringsArray {
  const before = known.get(strings);
  if (before !== undefined) return before;
  const texts = strings.map((text) => text.replaceAll(/using \((\w+), tenant_no\)/g, 'using ($1)'));
  for (let i = 0; i + 1 < texts.length; i += 1) {
    const filter = /((?:\w+\.)?tenant_no) = $/.exec(texts[i] ?? '');
    if (filter === null) continue;
    texts[i] = `${(texts[i] ?? '').slice(0, filter.index)}(true or ${filter[0]}`;
    texts[i + 1] = `)${texts[i + 1] ?? ''}`;
  }
  const result = Object.assign(texts, { raw: texts }) as unknown as TemplateStringsArray;
  known.set(strings, result);
  return result;
}
