import { chmod, copyFile, mkdir, readFile } from 'node:fs/promises';
import { defineConfig } from 'rolldown';

// Bundles the SDK with the part of ../protocol that it uses. Dependencies of package.json stay imports.
const { bin, dependencies, exports } = JSON.parse(
  await readFile(new URL('package.json', import.meta.url), 'utf8'),
);
const packages = Object.keys(dependencies);

/** Makes the programs executable: npm does so on install, but this workspace is built after the install. */
const executable = {
  name: 'executable',
  writeBundle: () =>
    Promise.all(Object.values(bin).map((file) => chmod(new URL(file, import.meta.url), 0o755))),
};
/** Copies the licence into this folder: npm packs a licence only from the folder of the package. */
const licence = {
  name: 'licence',
  writeBundle: () =>
    copyFile(new URL('../LICENSE', import.meta.url), new URL('LICENSE', import.meta.url)),
};

/** The source of each export: `./dist/adapters/mcp.js` is built from `adapters/mcp.ts`. */
const entries = Object.values(exports).flatMap((one) => one.default?.slice(7, -3) ?? []);

/** Copies the declarations reachable from the entries out of ../dist: emitting them again takes seconds. */
const types = {
  name: 'types',
  writeBundle: async () => {
    const files = new Set(entries.map((name) => `sdk/${name}.d.ts`));
    // The loop also visits the files that it adds.
    for (const file of files) {
      const from = new URL(`../dist/${file}`, import.meta.url);
      const to = new URL(`dist/types/${file}`, import.meta.url);
      await mkdir(new URL('.', to), { recursive: true });
      await copyFile(from, to);
      for (const [, path] of (await readFile(from, 'utf8')).matchAll(/['"](\.[^'"]+)\.js['"]/g)) {
        files.add(new URL(`${path}.d.ts`, `file:///${file}`).pathname.slice(1));
      }
    }
  },
};

export default defineConfig({
  input: Object.fromEntries([...entries, 'cli/svc'].map((name) => [name, `${name}.ts`])),
  platform: 'neutral',
  resolve: { extensionAlias: { '.js': ['.ts'] } },
  external: (id) =>
    id.startsWith('node:') || packages.some((name) => id === name || id.startsWith(`${name}/`)),
  plugins: [executable, licence, types],
  output: {
    dir: 'dist',
    cleanDir: true,
    format: 'esm',
    chunkFileNames: 'chunks/[name].js',
    sourcemap: true,
  },
  // Every warning fails the build.
  onLog: (_level, log) => {
    throw new Error(log.message);
  },
});
