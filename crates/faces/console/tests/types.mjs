// Checks the console's modules with TypeScript against types made from the server's own OpenAPI document: a renamed
// field breaks this check, not a user.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { serverBinary } from './binary.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const build = join(here, 'build');
rmSync(build, { recursive: true, force: true });
mkdirSync(build);
cpSync(join(here, '..', 'web'), join(build, 'web'), { recursive: true });
const document = join(build, 'openapi.json');
writeFileSync(document, execFileSync(serverBinary(), ['openapi'], { maxBuffer: 1 << 26 }));
const tool = (name, path) => join(here, 'node_modules', name, path);
execFileSync(process.execPath, [tool('openapi-typescript', 'bin/cli.js'), document, '-o', join(build, 'web', 'schema.d.ts')], { stdio: ['ignore', 'ignore', 'inherit'] });
writeFileSync(join(build, 'tsconfig.json'), JSON.stringify({
  compilerOptions: {
    allowJs: true, checkJs: true, noEmit: true, strict: true, target: 'ES2023', module: 'ES2022', moduleResolution: 'bundler',
    lib: ['ES2023', 'DOM', 'DOM.Iterable'], types: [], noUncheckedIndexedAccess: true, noPropertyAccessFromIndexSignature: true,
    noUnusedLocals: true, noUnusedParameters: true, skipLibCheck: true,
  },
  include: ['web/**/*.js', 'web/schema.d.ts'],
}));
try {
  execFileSync(process.execPath, [tool('typescript', 'bin/tsc'), '-p', build], { stdio: 'inherit' });
} catch {
  console.error('the types of the console do not fit');
  process.exit(1);
}
const files = JSON.parse(readFileSync(document, 'utf8'));
console.log(`types fit ${Object.keys(files.paths).length} paths of the interface`);
