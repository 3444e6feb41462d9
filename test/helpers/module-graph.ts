import { readFile } from 'node:fs/promises';
import { posix, join } from 'node:path';
import ts from 'typescript';

/** What a program loads that begins at some files of a package. */
export interface Reached {
  /** Files of the package itself, as paths in it. */
  files: Set<string>;
  /** What is imported from elsewhere, modules of Node among it. */
  packages: Set<string>;
  /** Where something is used that only Node has. */
  globals: string[];
}

const ONLY_NODE = new Set(['process', 'Buffer', 'require', '__dirname', '__filename', 'global']);

/** Follows every import as a bundler does: those for effects and those made at run time too. */
export async function reachable(root: string, entries: readonly string[]): Promise<Reached> {
  const found: Reached = { files: new Set(), packages: new Set(), globals: [] };
  const open = entries.map((entry) => posix.normalize(entry));
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    if (found.files.has(file)) continue;
    found.files.add(file);
    const { imported, globals } = uses(file, await readFile(join(root, file), 'utf8'));
    found.globals.push(...globals.map((name) => `${file}: ${name}`));
    for (const name of imported) {
      if (name.startsWith('.')) open.push(posix.join(posix.dirname(file), name));
      else found.packages.add(name);
    }
  }
  return found;
}

function uses(file: string, text: string): { imported: string[]; globals: string[] } {
  const imported: string[] = [];
  const globals: string[] = [];
  const visit = (node: ts.Node): void => {
    const specifier = specifierOf(node);
    if (specifier !== undefined) {
      imported.push(ts.isStringLiteralLike(specifier) ? specifier.text : specifier.getText());
    }
    if (ts.isIdentifier(node) && ONLY_NODE.has(node.text) && !isName(node)) globals.push(node.text);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true));
  return { imported, globals };
}

function specifierOf(node: ts.Node): ts.Expression | undefined {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier;
  const isImport =
    ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword;
  return isImport ? node.arguments[0] : undefined;
}

/** The name of a member, as in `job.process` or `{ process: 1 }`, which is no use of a variable. */
function isName({ parent, ...node }: ts.Identifier): boolean {
  return (
    (ts.isPropertyAccessExpression(parent) &&
      parent.name.pos === node.pos &&
      parent.expression.getText() !== 'globalThis') ||
    (ts.isPropertyAssignment(parent) && parent.name.pos === node.pos)
  );
}
