import { existsSync, readdirSync, readFileSync } from 'node:fs';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

const root = new URL('../../', import.meta.url);
const text = (path: string): string => readFileSync(new URL(path, root), 'utf8');

/** Arguments of log calls that are expressions instead of a text, keyed by file. */
const FORWARDED_MESSAGES = [
  'api/public/http/answer.ts: problem.message',
  'programs/replica.ts: message',
  'publisher/publisher.ts: MESSAGES[report.outcome]',
  'publisher/publisher.ts: message',
  "runtime/process/lifecycle.ts: error instanceof Error ? error.message : 'program stopped after an error'",
  'runtime/process/lifecycle.ts: error.message',
  'runtime/process/lifecycle.ts: text || err?.message',
  'runtime/process/log.ts: message',
];

/** Errors whose message is logged when they end a program: the index of the message in the constructor's arguments. */
const FATAL_ERRORS: Readonly<Record<string, number>> = { FatalPublishError: 1, StallError: 0 };

it('docs/runbooks.md > quotes every warning and error that programs log', () => {
  const [, section = ''] = text('docs/runbooks.md').split('\n## Log messages\n');
  const quotes = [...section.split('\n## ')[0]!.matchAll(/`([^`]+)`/g)]
    .map(([, quote = '']) => quote.replace(/\s+/g, ' ').replace(/ ?…$/, ''))
    .filter((quote) => quote.length >= 5);
  const logged = ['api', 'policy', 'programs', 'publisher', 'runtime', 'sql', 'workers'].flatMap(
    (folder) =>
      readdirSync(new URL(`${folder}/`, root), { encoding: 'utf8', recursive: true })
        .filter((path) => path.endsWith('.ts') && !/(?:^|\/)(?:dist|node_modules)\//.test(path))
        .flatMap((path) => loggedIn(`${folder}/${path}`)),
  );
  expect(logged.length).toBeGreaterThan(60);
  const forwarded = logged.filter(({ message }) => message === null);
  expect([...new Set(forwarded.map(({ source }) => source))].sort()).toEqual(FORWARDED_MESSAGES);
  const isQuoted = (message: string): boolean => quotes.some((quote) => message.startsWith(quote));
  const missing = logged.flatMap(({ message }) => message ?? []).filter((one) => !isQuoted(one));
  expect(missing).toEqual([]);
});

it('docs/policies.md > quotes the tested examples verbatim', () => {
  const unindented = (code: string): string => code.replace(/^ +/gm, '');
  const sources = ['examples/policies/', 'policy/default/']
    .flatMap((folder) =>
      readdirSync(new URL(folder, root), { encoding: 'utf8', recursive: true }).map(
        (path) => `${folder}${path}`,
      ),
    )
    .filter((path) => /\.(?:cedar|cedarschema|json)$/.test(path))
    .map((path) => unindented(text(path)));
  const quotes = [...text('docs/policies.md').matchAll(/^```(\w*)\n(.*?)^```$/gms)]
    .filter(([, language, code = '']) => language !== '' || /^\s*(?:permit|forbid|@)/m.test(code))
    .map(([, , code = '']) => unindented(code));
  expect(quotes.length).toBeGreaterThan(0);
  expect(quotes.filter((code) => !sources.some((source) => source.includes(code)))).toEqual([]);
});

it('docs/architecture.md > names files that exist', () => {
  const folders = [...text('docs/architecture.md').matchAll(/^(\w+)\/ {2,}/gm)].map(
    ([, name]) => name,
  );
  const files = folders.flatMap((folder) =>
    readdirSync(new URL(`${folder}/`, root), { encoding: 'utf8', recursive: true })
      .filter((path) => !/(?:^|\/)(?:dist|node_modules)\//.test(path))
      .map((path) => `/${folder}/${path}`),
  );
  const named = text('docs/architecture.md').match(/[\w./-]+\.ts\b/g) ?? [];
  expect(named.length).toBeGreaterThan(50);
  expect(named.filter((name) => !files.some((file) => file.endsWith(`/${name}`)))).toEqual([]);
});

/** Outside a project with @svc-proofs/sdk, npx could download a package of another author. */
it('documentation > runs npx only with --no, which downloads nothing', () => {
  const folders = ['api', 'docs', 'examples', 'programs', 'sdk'];
  const files = folders
    .flatMap((folder) =>
      readdirSync(new URL(`${folder}/`, root), { encoding: 'utf8', recursive: true }).map(
        (path) => `${folder}/${path}`,
      ),
    )
    .filter(
      (path) => /\.(?:md|ts|json|txt|html)$/.test(path) && !/\b(?:node_modules|dist)\//.test(path),
    );
  const commands = ['README.md', ...files].flatMap(
    (path) => text(path).match(/\b(?:npx|npm exec)\b[^\n`]*?\bsvcp?\b/g) ?? [],
  );
  expect(new Set(commands)).toEqual(new Set(['npx --no -- svcp']));
});

/** Without --silent, npm prints a banner into the file. */
it('documentation and help > write the output of npm run into a file only with --silent', () => {
  const pages = readdirSync(new URL('docs/', root), { encoding: 'utf8', recursive: true })
    .filter((path) => path.endsWith('.md'))
    .map((path) => text(`docs/${path}`));
  const written = ['README.md', 'CONTRIBUTING.md', 'test/golden/admin-help.txt']
    .map(text)
    .concat(pages)
    .flatMap((page) => page.match(/npm run [^\n`|]* > ?\S+/g) ?? []);
  expect(written.length).toBeGreaterThan(0);
  expect(written.filter((line) => !line.startsWith('npm run --silent '))).toEqual([]);
});

/** Others can read the arguments of processes, and PostgreSQL logs statements. */
it('documentation > puts no password into an argument or a statement', () => {
  const pages = readdirSync(new URL('docs/', root)).filter((name) => name.endsWith('.md'));
  const found = pages.flatMap((name) =>
    (text(`docs/${name}`).match(/password '.*|-e DATABASE_URL=.*/g) ?? []).map((line) => [
      name,
      line,
    ]),
  );
  expect(found).toEqual([]);
});

it('documentation and SQL > contain no banned word', () => {
  const banned = JSON.parse(text('.ci/banned-words.json')) as Record<string, string[]>;
  const words = new RegExp(`\\b(?:${banned['comments and pages']!.join('|')})\\b`, 'gi');
  const files = ['docs', 'spec', 'sql/migrations'].flatMap((folder) =>
    readdirSync(new URL(`${folder}/`, root), { encoding: 'utf8', recursive: true }).map(
      (path) => `${folder}/${path}`,
    ),
  );
  const found = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', ...files]
    .filter((path) => /\.(?:md|sql)$/.test(path))
    // Text in backquotes is a name, such as that of an operating-system user.
    .map((path) => ({
      path,
      words: text(path)
        .replace(/`[^`]*`/g, '')
        .match(words),
    }))
    .filter(({ words }) => words !== null);
  expect(found).toEqual([]);
});

/** The messages of the calls that log at level warn or above; null for a message that is an expression. */
function loggedIn(path: string): { message: string | null; source: string }[] {
  const code = text(path);
  if (!/\blog|StallError/i.test(code)) return [];
  const file = ts.createSourceFile(path, code, ts.ScriptTarget.Latest, true);
  const found: { message: string | null; source: string }[] = [];
  const constants = new Map<string, ts.Expression>();
  const messagesOf = (node: ts.Expression): (string | null)[] => {
    if (ts.isStringLiteralLike(node)) return [node.text];
    if (ts.isTemplateExpression(node)) {
      const rest = node.templateSpans.map(({ literal }) => `…${literal.text}`);
      return [node.head.text + rest.join('')];
    }
    if (ts.isConditionalExpression(node)) {
      return [node.whenTrue, node.whenFalse].flatMap(messagesOf);
    }
    // The runbook quotes the beginning of a long message.
    if (ts.isBinaryExpression(node)) return messagesOf(node.left);
    const constant = ts.isIdentifier(node) ? constants.get(node.text) : undefined;
    return constant === undefined ? [null] : messagesOf(constant);
  };
  const visit = (node: ts.Node): void => {
    if (ts.isVariableDeclaration(node) && ts.isIdentifier(node.name) && node.initializer) {
      const { initializer } = node;
      if (ts.isStringLiteralLike(initializer) || ts.isTemplateExpression(initializer)) {
        constants.set(node.name.text, initializer);
      }
    }
    if (ts.isCallExpression(node)) {
      const called = node.expression.getText(file);
      const last = node.arguments.at(-1);
      if (/(?:^logRarely|\blog(?:ger)?(?:\.(?:warn|error|fatal)|\[.*\]))$/s.test(called) && last) {
        const source = `${path}: ${last.getText(file)}`;
        found.push(...messagesOf(last).map((message) => ({ message, source })));
      }
    }
    if (ts.isNewExpression(node)) {
      const message = node.arguments?.[FATAL_ERRORS[node.expression.getText(file)] ?? NaN];
      const source = `${path}: ${message?.getText(file) ?? ''}`;
      if (message) found.push(...messagesOf(message).map((text) => ({ message: text, source })));
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

describe('links between documentation pages', () => {
  const folders = ['', 'docs/', 'docs/decisions/', 'spec/'];
  const pages = folders.flatMap((folder) =>
    readdirSync(new URL(folder, root), { encoding: 'utf8' })
      .filter((name) => name.endsWith('.md'))
      .map((name) => `${folder}${name}`),
  );
  const prose = (page: string): string => text(page).replace(/^```.*?^```/gms, '');
  /** Heading anchors as GitHub creates them, without punctuation. */
  const anchors = (page: string): string[] =>
    [...prose(page).matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
      title
        .toLowerCase()
        .replace(/[^\w\- ]/g, '')
        .replaceAll(' ', '-'),
    );
  it.each(pages)('from %s lead to existing headings', (page) => {
    const lost = [...prose(page).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => !/^[a-z]+:/.test(target))
      .filter((target) => {
        const [path = '', anchor] = target.split('#');
        const to = path === '' ? new URL(page, root) : new URL(path, new URL(page, root));
        if (!existsSync(to)) return true;
        return (
          anchor !== undefined && !anchors(to.pathname.slice(root.pathname.length)).includes(anchor)
        );
      });
    expect(lost).toEqual([]);
  });
});
